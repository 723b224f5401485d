"""Logits as a .npy file, written row by row: how many rows there will be is known only at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np

from uringinfer.models.base import Floats
from uringinfer.storage.growing_file import GrowingFile

_HEADER_BYTES = 128


class LogitsFile:
    """Writes float32 [rows, vocab] to `path`. A context manager; the file is whole after a clean exit.

    Raises EnvironmentError_ naming `path` if it cannot be written, when it is opened or later (a full drive).
    """

    def __init__(self, path: Path | str, vocab: int) -> None:
        self._vocab = vocab
        self._rows = 0
        self._file = GrowingFile(Path(path))
        self._file.append(_header(0, vocab))

    def append(self, logits: Floats) -> None:
        """Adds rows [n, vocab]."""
        self._file.append(np.ascontiguousarray(logits, np.float32).data)
        self._rows += len(logits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._file.close(error, head=_header(self._rows, self._vocab))


def _header(rows: int, vocab: int) -> bytes:
    """A version 1.0 header of exactly `_HEADER_BYTES` bytes (numpy's own depends on the number of digits)."""
    start = np.lib.format.magic(1, 0)
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {vocab}), }}"
    length = _HEADER_BYTES - len(start) - 2
    return start + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"
