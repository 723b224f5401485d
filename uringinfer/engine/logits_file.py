"""Logits as a .npy file, written row by row: how many rows there will be is known only at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from uringinfer.errors import EnvironmentError_
from uringinfer.models.base import Floats

_HEADER_BYTES = 128


class LogitsFile:
    """Writes float32 [rows, vocab] to `path`. A context manager; the file is whole after a clean exit.

    Raises EnvironmentError_ naming `path` if it cannot be written, when it is opened or later (a full drive).
    """

    def __init__(self, path: Path | str, vocab: int) -> None:
        self._path = Path(path)
        self._vocab = vocab
        self._rows = 0
        with self._naming_the_file():
            self._file: BinaryIO = self._path.open("wb")
            self._file.write(_header(0, vocab))

    def append(self, logits: Floats) -> None:
        """Adds rows [n, vocab]."""
        with self._naming_the_file():
            self._file.write(np.ascontiguousarray(logits, np.float32).data)
        self._rows += len(logits)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            with self._naming_the_file():
                try:
                    self._file.seek(0)
                    self._file.write(_header(self._rows, self._vocab))
                finally:
                    self._file.close()
        except EnvironmentError_:
            if error is None:  # else the first error is the one to tell
                raise

    @contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EnvironmentError_(
                f"cannot write {self._path}: {error.strerror}", hint="choose another file"
            ) from None


def _header(rows: int, vocab: int) -> bytes:
    """A version 1.0 header of exactly `_HEADER_BYTES` bytes (numpy's own depends on the number of digits)."""
    start = np.lib.format.magic(1, 0)
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {vocab}), }}"
    length = _HEADER_BYTES - len(start) - 2
    return start + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"
