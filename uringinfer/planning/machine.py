"""What this machine lets this process use: RAM, every cgroup above it, and its own limits.

Reads /proc and /sys only; both roots are parameters, so tests bring their own trees. "Usable" means: what
the process may hold in all, counting what it holds already. The page cache is not used memory, since the
kernel gives it up on demand; swap is reported and never counted, since a weight that has to be swapped in
is a page fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uringinfer.errors import EnvironmentError_
from uringinfer.planning.neighbours import Neighbour, find_neighbours

_PROC = Path("/proc")
_SYS = Path("/sys")
_UNLIMITED = 1 << 60
"""Cgroup v1 says "no limit" as the largest multiple of the page size in 63 bits; nothing real comes near."""
_NOTED_SHARE = 0.01
"""Of the memory of this machine: smaller engines are counted, and not spoken of."""
_V2_LIMITS = ("memory.max", "memory.high")


@dataclass(frozen=True, slots=True)
class Bound:
    """One limit on memory: `limit` bytes by its rule, of which this process may use `usable`."""

    name: str
    limit: int
    usable: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The memory of this machine as this process sees it; bytes. `memlock` values are None if unlimited."""

    memory_total: int
    memory_available: int
    resident: int
    swap_total: int
    swap_free: int
    memlock_soft: int | None
    memlock_hard: int | None
    bounds: tuple[Bound, ...]
    neighbours: tuple[Neighbour, ...] = ()

    @classmethod
    def read(cls, proc: Path = _PROC, sys: Path = _SYS) -> Machine:
        """Reads meminfo, limits and cgroups below `proc` and `sys`.

        Raises EnvironmentError_ if /proc does not say how much memory there is.
        """
        memory = _fields(proc / "meminfo")
        status = _fields(proc / "self/status")
        if "MemTotal" not in memory:
            raise EnvironmentError_(f"{proc / 'meminfo'} does not give MemTotal", hint="mount /proc")
        resident = status.get("VmRSS", 0)
        total = memory["MemTotal"]
        available = memory.get("MemAvailable", total)
        limits = _limits(proc / "self/limits")
        memlock_soft, memlock_hard = limits.get("Max locked memory", (None, None))
        neighbours = find_neighbours(proc)
        promised = sum(neighbour.promised for neighbour in neighbours)
        free = max(0, min(total, available + resident) - promised)
        bounds = [Bound("memory available on this machine", total, free)]
        for name, label, size in (
            ("RLIMIT_AS", "Max address space", "VmSize"),
            ("RLIMIT_DATA", "Max data size", "VmData"),
        ):
            soft, _ = limits.get(label, (None, None))
            if soft is not None:
                # these count addresses: what is mapped and not resident is lost to us
                mapped_only = max(0, status.get(size, 0) - resident)
                bounds.append(Bound(name, soft, max(0, soft - mapped_only)))
        bounds += _cgroup_bounds(proc, sys, resident, neighbours)
        return cls(
            memory_total=total,
            memory_available=available,
            resident=resident,
            swap_total=memory.get("SwapTotal", 0),
            swap_free=memory.get("SwapFree", 0),
            memlock_soft=memlock_soft,
            memlock_hard=memlock_hard,
            bounds=tuple(bounds),
            neighbours=neighbours,
        )

    @property
    def tightest(self) -> Bound:
        """The bound that leaves the least."""
        return min(self.bounds, key=lambda bound: bound.usable)

    @property
    def usable_bytes(self) -> int:
        """What this process may hold in all, under every bound."""
        return self.tightest.usable

    @property
    def neighbour_notes(self) -> list[str]:
        """One line for each other engine on this machine that takes a share of it worth a line."""
        least = self.memory_total * _NOTED_SHARE
        return [neighbour.to_text() for neighbour in self.neighbours if neighbour.takes >= least]

    @property
    def cgroup_bounds(self) -> list[Bound]:
        """The memory limits of the cgroups above this process; inside one, the tightest is the real RAM."""
        return [bound for bound in self.bounds if bound.name.startswith("cgroup")]

    @property
    def bounded_by(self) -> str:
        """Name of the bound that gives `usable_bytes`."""
        return self.tightest.name

    def to_json(self) -> dict[str, Any]:
        return {
            "memory_total": self.memory_total,
            "memory_available": self.memory_available,
            "swap_total": self.swap_total,
            "swap_free": self.swap_free,
            "memlock_soft": self.memlock_soft,
            "memlock_hard": self.memlock_hard,
            "usable_bytes": self.usable_bytes,
            "bounded_by": self.bounded_by,
            "bounds": [
                {"name": bound.name, "limit": bound.limit, "usable": bound.usable} for bound in self.bounds
            ],
            "neighbours": [neighbour.to_json() for neighbour in self.neighbours],
        }


def resident_bytes(proc: Path = _PROC) -> int:
    """Resident memory of this process in bytes (VmRSS), 0 where /proc does not say."""
    return _fields(proc / "self/status").get("VmRSS", 0)


def _text(path: Path) -> str:
    """The file's text; empty if it is not there or not ours to read, as limits then do not apply to us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _fields(path: Path) -> dict[str, int]:
    """ "Name:   123 kB" lines, in bytes."""
    found = re.findall(r"^(\w+):\s+(\d+) kB$", _text(path), re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in found}


def _limits(path: Path) -> dict[str, tuple[int | None, int | None]]:
    """Soft and hard values of the limits in /proc/self/limits, None for "unlimited"."""
    pattern = r"^(Max [a-z ]+?)\s+(\d+|unlimited)\s+(\d+|unlimited)\s+bytes"
    found = re.findall(pattern, _text(path), re.MULTILINE)
    return {name: (_number(soft), _number(hard)) for name, soft, hard in found}


def _number(text: str) -> int | None:
    """A count, or None for "max", "unlimited", "-1", nothing, and v1's huge number for no limit."""
    text = text.strip()
    value = int(text) if text.isdecimal() else None
    return value if value is not None and value < _UNLIMITED else None


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """A mounted cgroup file system that may hold memory limits. `root` is the cgroup seen at `mount`."""

    version: int
    root: str
    mount: Path


def _cgroup_bounds(proc: Path, sys: Path, resident: int, neighbours: Sequence[Neighbour]) -> Iterator[Bound]:
    """The limits of this process' cgroup and of all above it, in every hierarchy."""
    paths = _own_cgroups(proc / "self/cgroup")
    others = [(neighbour, _own_cgroups(proc / str(neighbour.pid) / "cgroup")) for neighbour in neighbours]
    for hierarchy in _hierarchies(proc / "self/mountinfo", sys):
        own = paths.get(hierarchy.version)
        if own is None:
            continue
        for directory in _ancestors(hierarchy, own):
            shown = f"/{directory.relative_to(hierarchy.mount)}".replace("/.", "/")
            promised = sum(
                neighbour.promised
                for neighbour, cgroups in others
                if directory in _ancestors(hierarchy, cgroups.get(hierarchy.version, "/"))
            )
            read = _v1_limits if hierarchy.version == 1 else _v2_limits
            for name, limit, used in read(directory):
                by_others = max(0, used - resident) + promised
                label = f"cgroup v{hierarchy.version} {shown} ({name})"
                yield Bound(label, limit, max(0, limit - by_others))


def _own_cgroups(path: Path) -> dict[int, str]:
    """This process' cgroup in the v1 memory hierarchy and in v2, from lines "id:controllers:path"."""
    own = {}
    for line in _text(path).splitlines():
        number, controllers, cgroup = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            own[1] = cgroup
        elif number == "0" and not controllers:
            own[2] = cgroup
    return own


def _hierarchies(mountinfo: Path, sys: Path) -> Iterator[_Hierarchy]:
    """Where the v1 memory controller and v2 are mounted; mount points below /sys are looked up below
    `sys`."""
    for line in _text(mountinfo).splitlines():
        left, separator, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if not separator or len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            version = 2
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            version = 1
        else:
            continue
        root, point = _unescape(fields[3]), Path(_unescape(fields[4]))
        mount = sys / point.relative_to("/sys") if point.is_relative_to("/sys") else point
        yield _Hierarchy(version, root, mount)


def _unescape(text: str) -> str:
    """mountinfo writes space, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _ancestors(hierarchy: _Hierarchy, own: str) -> Iterator[Path]:
    """The directories of cgroup `own` and of all above it, as far as they are mounted.

    In a container the mount shows a part of the tree, from `root` down. A path outside of it belongs to
    another namespace; then the mount point is the nearest that can be seen.
    """
    inside = Path(own)
    relative = inside.relative_to(hierarchy.root) if inside.is_relative_to(hierarchy.root) else Path()
    directory = hierarchy.mount / relative
    if ".." in relative.parts or not directory.is_dir():
        directory = hierarchy.mount
    yield directory
    while directory != hierarchy.mount:
        directory = directory.parent
        yield directory


def _v1_limits(directory: Path) -> Iterator[tuple[str, int, int]]:
    """(name, limit, used) of a v1 memory cgroup; used without the page cache."""
    statistics = _statistics(directory)
    used = _used(directory / "memory.usage_in_bytes", statistics, "total_")
    limit = _number(_text(directory / "memory.limit_in_bytes"))
    if limit is not None:
        yield "memory.limit_in_bytes", limit, used
    # the kernel's own minimum over all ancestors: in a container it counts those that are not mounted
    inherited = _number(str(statistics.get("hierarchical_memory_limit", "")))
    if inherited is not None and (limit is None or inherited < limit):
        yield "hierarchical_memory_limit", inherited, used


def _v2_limits(directory: Path) -> Iterator[tuple[str, int, int]]:
    """(name, limit, used) of a v2 cgroup; used without the page cache."""
    used = _used(directory / "memory.current", _statistics(directory), "")
    for name in _V2_LIMITS:
        limit = _number(_text(directory / name))
        if limit is not None:
            yield name, limit, used


def _statistics(directory: Path) -> dict[str, int]:
    found = re.findall(r"^(\w+) (\d+)$", _text(directory / "memory.stat"), re.MULTILINE)
    return {name: int(value) for name, value in found}


def _used(counter: Path, statistics: Mapping[str, int], prefix: str) -> int:
    """What the cgroup holds besides file pages that the kernel can drop."""
    current = _number(_text(counter)) or 0
    cache = statistics.get(f"{prefix}active_file", 0) + statistics.get(f"{prefix}inactive_file", 0)
    return max(0, current - cache)
