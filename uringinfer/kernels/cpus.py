"""How many processors this process may really use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def usable_cpus(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Processors of the affinity mask, or fewer where a cgroup's CPU quota (v1 or v2, own or of an ancestor)
    gives less time than that; at least 1."""
    cpus = float(len(os.sched_getaffinity(0)))
    for quota in _quotas(proc, cgroup):
        cpus = min(cpus, quota)
    return max(1, int(cpus))


def _quotas(proc: Path, cgroup: Path) -> Iterator[float]:
    """The quota, in processors, of every cgroup that this process is in."""
    for line in _read(proc / "self" / "cgroup").splitlines():
        controllers, path = [*line.split(":", 2), "", ""][1:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroup / "cpu" if controllers else cgroup
        place = root / path.lstrip("/")
        for folder in (place, *place.parents):
            limit = _read(folder / "cpu.max").split() or [
                _read(folder / "cpu.cfs_quota_us").strip(),
                _read(folder / "cpu.cfs_period_us").strip(),
            ]
            if all(part.isdigit() for part in limit) and len(limit) == 2 and int(limit[1]) > 0:
                yield int(limit[0]) / int(limit[1])
            if folder == root:
                break


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
