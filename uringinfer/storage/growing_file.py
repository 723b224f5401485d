"""Files that a run writes all along, whose size is known only at its end: logits, traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uringinfer.errors import EnvironmentError_


class GrowingFile:
    """Writes `path` anew; `close` it.

    Raises EnvironmentError_ naming `path` if it cannot be written, when it is opened or later (a full drive).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._naming_it():
            self._file = path.open("wb")

    def append(self, data: bytes | memoryview) -> None:
        """Adds `data` at the end."""
        with self._naming_it():
            self._file.write(data)

    def close(self, ended_by: BaseException | None = None, *, head: bytes = b"") -> None:
        """Puts `head` over the beginning and closes the file.

        Raises nothing where an error ended the run (`ended_by`): the first is the one to tell.
        """
        try:
            with self._naming_it(), self._file:
                if head:
                    self._file.seek(0)
                    self._file.write(head)
        except EnvironmentError_:
            if ended_by is None:
                raise

    @contextmanager
    def _naming_it(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EnvironmentError_(
                f"cannot write {self._path}: {error.strerror}", hint="choose another file"
            ) from None
