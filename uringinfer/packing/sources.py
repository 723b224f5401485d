"""Opens a checkpoint of whatever kind it is."""

from __future__ import annotations

from pathlib import Path

from uringinfer.errors import UsageError
from uringinfer.packing.checkpoint import CheckpointSource
from uringinfer.packing.downloads import check_content
from uringinfer.packing.gguf_files import holds_gguf
from uringinfer.packing.quantised import with_kept_matrices
from uringinfer.packing.source import TensorSource


def open_source(path: Path) -> TensorSource:
    """The checkpoint at `path`: a Hugging Face directory; or a GGUF file, any part of one, or the directory
    that it lies in.

    Raises UsageError if it is none, and what opening that kind raises.
    """
    if path.is_dir() and not holds_gguf(path):
        return with_kept_matrices(CheckpointSource.open(path))
    if path.is_file():
        check_content(path)
    if path.is_dir() or path.is_file():
        from uringinfer.packing.gguf import GgufSource  # the gguf package takes a while to import

        return GgufSource.open(path)
    what = "is no checkpoint" if path.exists() else "does not exist"
    raise UsageError(
        f"{path} {what}", hint="name a directory with config.json and *.safetensors, or a GGUF file"
    )
