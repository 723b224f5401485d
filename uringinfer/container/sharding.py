"""Experts spread over several drives: which drive holds which record, and whether the drives are there.

A sharded container keeps its manifest and trunk; the records of its banks lie in a directory on each drive.
A record's drive follows from a short pattern, its place there from counting. The directories' paths are the
only ones in a manifest that leave the container, so each must hold a marker that names this very sharding: a
manifest alone cannot make anybody read other files.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uringinfer.container.fields import Fields, parse_object
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.storage.regular import open_regular

if TYPE_CHECKING:
    from uringinfer.container.manifest import Manifest

MARKER_NAME = "shard.json"
MAX_DRIVES = 64
MAX_PATTERN = 1024
_MAX_MARKER_BYTES = 4096
_REMEDY = "mount the drive where it was, or pack the checkpoint again"


@dataclass(frozen=True, slots=True)
class Sharding:
    """Expert e of every bank lies on drive `pattern[e % len(pattern)]`, behind the records of smaller numbers
    there. `drives` are absolute paths; `key` (16 hex digits) is what their markers say."""

    drives: tuple[str, ...]
    pattern: tuple[int, ...]
    key: str

    def place(self, expert: int) -> tuple[int, int]:
        """(drive, number of the record there)."""
        rounds, rest = divmod(expert, len(self.pattern))
        drive = self.pattern[rest]
        return drive, rounds * self.pattern.count(drive) + self.pattern[:rest].count(drive)

    def count(self, drive: int, experts: int) -> int:
        """How many of the first `experts` records lie on `drive`."""
        rounds, rest = divmod(experts, len(self.pattern))
        return rounds * self.pattern.count(drive) + self.pattern[:rest].count(drive)

    def to_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return {"drives": list(self.drives), "pattern": list(self.pattern), "key": self.key}


def read_sharding(value: object, where: str) -> Sharding:
    """The sharding that a manifest says. Raises IntegrityError if it is none."""
    fields = Fields(value, where)
    drives = fields.items("drives")
    if not 1 <= len(drives) <= MAX_DRIVES:
        fields.fail("drives", f"{len(drives)} are not between 1 and {MAX_DRIVES}")
    for path in drives:
        if (
            type(path) is not str
            or not path.startswith("/")
            or os.path.normpath(path) != path
            or "\0" in path
        ):
            fields.fail("drives", f"{ascii(path)[:60]} is no absolute path")
    entries = fields.items("pattern")
    if not 1 <= len(entries) <= MAX_PATTERN:
        fields.fail("pattern", f"{len(entries)} entries are not between 1 and {MAX_PATTERN}")
    pattern = fields.bounded(entries, "pattern", 0, len(drives) - 1)
    sharding = Sharding(tuple(drives), pattern, fields.identifier("key"))
    fields.close()
    if len(set(drives)) != len(drives) or set(pattern) != set(range(len(drives))):
        raise IntegrityError(f"{where}: a drive stands twice, or holds nothing")
    return sharding


def check_drives(manifest: Manifest) -> None:
    """Raises IntegrityError naming the first drive that is missing, is not this container's, or holds a bank
    of the wrong size."""
    sharding = manifest.sharding
    if sharding is None:
        return
    for number, drive in enumerate(sharding.drives):
        which = f"drive {number + 1} of {len(sharding.drives)}"
        directory = Path(drive)
        if not directory.is_dir():
            raise IntegrityError(f"{which} is missing: {directory}", hint=_REMEDY)
        _check_marker(directory, which, marker(sharding, number))
        for bank in manifest.banks:
            nbytes = sharding.count(number, bank.num_experts) * bank.record_bytes
            _check_bank_file(directory / bank.file, nbytes)


def marker(sharding: Sharding, drive: int) -> dict[str, Any]:
    """What the marker of one drive says."""
    return {"key": sharding.key, "drive": drive, "drives": len(sharding.drives)}


def _check_marker(directory: Path, which: str, expected: dict[str, Any]) -> None:
    path = directory / MARKER_NAME
    try:
        with open_regular(path) as file:
            found = parse_object(file.read(_MAX_MARKER_BYTES), str(path))
    except OSError as error:
        raise IntegrityError(f"{which}: cannot read {path}: {os.strerror(error.errno or 0)}") from error
    if found != expected:
        raise IntegrityError(f"{which}: {directory} belongs to another container or sharding", hint=_REMEDY)


def _check_bank_file(path: Path, nbytes: int) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise IntegrityError(f"{path} is missing, {nbytes} bytes by the manifest", hint=_REMEDY) from None
    except OSError as error:
        raise EnvironmentError_(f"cannot look at {path}: {os.strerror(error.errno or 0)}") from error
    if not stat.S_ISREG(status.st_mode):
        raise IntegrityError(f"{path}: not a regular file")
    if status.st_size != nbytes:
        raise IntegrityError(f"{path}: holds {status.st_size} bytes, {nbytes} by the manifest", hint=_REMEDY)
