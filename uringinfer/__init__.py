"""uringinfer generates text with language models larger than memory, streamed from NVMe.

`uringinfer.load(path, budget=...)` gives an `Engine`. The names below come from `uringinfer.api` and are
imported when one is first used, so that `import uringinfer` costs nothing.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = frozenset(
    {
        "Engine",
        "Generation",
        "GenerationOptions",
        "Listener",
        "LoadOptions",
        "LogitsFile",
        "OpenModel",
        "Prompter",
        "ProbeReport",
        "SamplingOptions",
        "Session",
        "Tokenizer",
        "diagnose",
        "load",
        "measure_perplexity",
        "open_model",
        "pack",
        "plan",
        "probe",
        "verify",
    }
)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module("uringinfer.api"), name)
    raise AttributeError(f"module 'uringinfer' has no attribute '{name}'")
