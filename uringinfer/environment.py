"""The environment variables of this package, each read in one place, at the edge.

| variable | meaning |
|---|---|
| `URINGINFER_NATIVE` | `0`: use neither the io_uring module nor the native kernels, even if they are built |
| `XDG_STATE_HOME` | what was typed in chats is kept in `$XDG_STATE_HOME/uringinfer` |
| `XDG_CACHE_HOME` | packed checkpoints and the rates of drives are kept in `$XDG_CACHE_HOME/uringinfer` |
"""

from __future__ import annotations

import os
from pathlib import Path


def native_enabled() -> bool:
    """Whether compiled modules may be used; `URINGINFER_NATIVE=0` forbids them."""
    return os.environ.get("URINGINFER_NATIVE") != "0"


def cache_directory() -> Path:
    """Where what can be made again is kept: `$XDG_CACHE_HOME/uringinfer`, by default below `~/.cache`."""
    return _directory("XDG_CACHE_HOME", ".cache")


def state_directory() -> Path:
    """Where what was typed is kept: `$XDG_STATE_HOME/uringinfer`, by default below `~/.local/state`."""
    return _directory("XDG_STATE_HOME", ".local/state")


def _directory(variable: str, default: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / default) / "uringinfer"
