"""uringinfer generates text with language models larger than memory, streamed from NVMe."""

__version__ = "0.1.0"
