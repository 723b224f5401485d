"""Other engines on this machine: what their plans promise them and they do not hold yet.

An engine keeps a memory file open whose name carries what its plan takes of its budget. Nothing is in the
file; the name stands in /proc for whoever may look at the process (its own user, and root), and goes with the
process. So an engine that is still loading is seen with all that it will take, and nothing is left behind by
one that was killed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uringinfer.units import format_size

_PROC = Path("/proc")
_NAME = "uringinfer-takes-"
_LINK = re.compile(rf"/memfd:{_NAME}(\d+)(?: \(deleted\))?")
_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another process with engines: what it takes in all, once loaded, and what it holds; bytes."""

    pid: int
    takes: int
    resident: int

    @property
    def promised(self) -> int:
        """What it has not taken yet, and may take any moment."""
        return max(0, self.takes - self.resident)

    def to_text(self) -> str:
        return (
            f"another engine runs on this machine (process {self.pid}): the"
            f" {format_size(self.takes)} that it takes are not counted as available"
        )

    def to_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "takes": self.takes, "resident": self.resident}


class Announcement:
    """Tells other engines what this one takes, until it is closed."""

    def __init__(self, takes: int) -> None:
        self._file = _memory_file(f"{_NAME}{takes}")

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _memory_file(name: str) -> int | None:
    """A descriptor; None where the kernel gives none, so that others do not see this engine."""
    try:
        return os.memfd_create(name)
    except (AttributeError, OSError):
        return None


def find_neighbours(proc: Path = _PROC) -> tuple[Neighbour, ...]:
    """The engines of other processes, as far as /proc shows them. An engine for each of several models in one
    process share that process' memory: the largest counts."""
    found = []
    for directory in _processes(proc):
        takes = max(_announced(directory), default=0)
        if takes:
            found.append(Neighbour(int(directory.name), takes, _resident(directory)))
    return tuple(found)


def _processes(proc: Path) -> Iterator[Path]:
    own = os.getpid()
    try:
        names = sorted(int(path.name) for path in proc.iterdir() if path.name.isdecimal())
    except OSError:
        return
    for pid in names:
        if pid != own:
            yield proc / str(pid)


def _announced(directory: Path) -> Iterator[int]:
    try:
        links = [str(path.readlink()) for path in (directory / "fd").iterdir()]
    except OSError:  # not ours to see, or gone meanwhile
        return
    for link in links:
        if match := _LINK.fullmatch(link):
            yield int(match[1])


def _resident(directory: Path) -> int:
    try:
        found = _RESIDENT.search((directory / "status").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
