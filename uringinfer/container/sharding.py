"""Experts spread over several drives: which drive holds which record.

A sharded container keeps its manifest and trunk; the records of its banks lie in a directory on each drive.
A record's drive follows from a short pattern, its place there from counting. What lies in those directories
is checked by `drives`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from uringinfer.container.fields import Fields
from uringinfer.errors import IntegrityError

MARKER_NAME = "shard.json"
MAX_DRIVES = 64
MAX_PATTERN = 1024


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


def marker(sharding: Sharding, drive: int) -> dict[str, Any]:
    """What the marker of one drive says."""
    return {"key": sharding.key, "drive": drive, "drives": len(sharding.drives)}
