"""Opens a file and says truly whether the page cache is bypassed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Direct:
    """Whether reads of a file bypass the page cache, why, and the alignments (bytes) that it asks for."""

    is_direct: bool
    reason: str
    mem_align: int
    offset_align: int


@dataclass(slots=True)
class StorageFile:
    """An open file. Make one with `open_file`; `close` it, or use it in a `with`."""

    path: Path
    fd: int
    nbytes: int
    direct: Direct
