"""What an interrupted pack has already written: index and CRC32 of every finished block, and what converting
it lost.

A line is written after its block, and the block is read back and compared when the journal is used: neither a
lost line nor a lost block can do harm, so no line is synced. The first line is the key of the whole job:
layout, source files and their times, seeds. A journal with another key describes another job and is dropped.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from uringinfer.errors import EnvironmentError_
from uringinfer.packing.conversion import Squares

JOURNAL_NAME = "pack.journal"


@dataclass(frozen=True, slots=True)
class Finished:
    """A block that is written: its checksum, and what each conversion in it lost."""

    crc32: int
    squares: tuple[Squares, ...] = ()

    def to_entry(self, block: int) -> dict[str, object]:
        entry: dict[str, object] = {"block": block, "crc32": self.crc32}
        if self.squares:
            entry["squares"] = [astuple(part) for part in self.squares]
        return entry

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Finished:
        squares = (
            Squares(tensor, kind, origin, form, float(error), float(norm))
            for tensor, kind, origin, form, error, norm in entry.get("squares", ())
        )
        return cls(int(entry["crc32"]), tuple(squares))


def is_journal_of(path: Path, key: str) -> bool:
    """Whether the file is the journal of the job `key`."""
    try:
        with path.open("rb") as file:
            return bool(json.loads(file.readline()) == {"key": key})
    except (OSError, ValueError):
        return False


class Journal:
    """The journal of one pack, whose directory is locked. `finished`: block index -> what it became."""

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        finished = self._read(key)
        self.is_new = finished is None
        self.finished: dict[int, Finished] = finished or {}
        if self.is_new:
            os.ftruncate(self._fd, 0)
            self._append({"key": key})

    def _read(self, key: str) -> dict[int, Finished] | None:
        """The finished blocks, or None if this is not the journal of `key`. Drops a line that was cut off."""
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines()
        try:
            if not lines or json.loads(lines[0]) != {"key": key}:
                return None
            entries = [json.loads(line) for line in lines[1:]]
            finished = {int(entry["block"]): Finished.from_entry(entry) for entry in entries}
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        os.ftruncate(self._fd, whole)
        return finished

    def record(self, block: int, finished: Finished) -> None:
        """Notes that `block` is written. Callable from any thread."""
        with self._lock:
            self._append(finished.to_entry(block))

    def _append(self, entry: dict[str, object]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        try:
            os.write(self._fd, line)
        except OSError as error:
            raise EnvironmentError_(
                f"cannot write to {self._path}: {os.strerror(error.errno or 0)}",
                hint="free some space, then run the same command again to continue",
            ) from error

    def sync(self) -> None:
        """Returns when the drive has every line: needed only where blocks cannot be made again."""
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
