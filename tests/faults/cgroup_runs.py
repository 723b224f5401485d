"""Runs commands in memory cgroups of their own, v1 or v2, that kill what exceeds them; needs root."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CGROUPS = Path("/sys/fs/cgroup")
KILLED = -9
_NUMBERS = itertools.count()


class NoCgroups(Exception):
    """This process may not make a memory cgroup."""


@dataclass(frozen=True)
class Run:
    """What came of a command: `code` is -9 for one that was killed; `peak` is what the cgroup held at most,
    in bytes, with the kernel's own and the page cache that could have been dropped."""

    code: int
    out: str
    err: str
    peak: int

    @property
    def was_killed(self) -> bool:
        return self.code in (KILLED, 128 - KILLED)


@contextmanager
def memory_cgroup(limit: int) -> Iterator[Path]:
    """A new memory cgroup of `limit` bytes without swap. Raises NoCgroups."""
    name = f"uringinfer-test-{os.getpid()}-{next(_NUMBERS)}"
    for parent, file in ((CGROUPS / "memory", "memory.limit_in_bytes"), (CGROUPS, "memory.max")):
        group = parent / name
        try:
            group.mkdir()
        except OSError:
            continue
        if not (group / file).exists():
            group.rmdir()
            continue
        try:
            (group / file).write_text(str(limit))
            for swap, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(limit))):
                if (group / swap).exists():
                    (group / swap).write_text(value)
            yield group
        finally:
            _remove(group)
        return
    raise NoCgroups("needs permission to make a memory cgroup (root)")


def run_in_cgroup(command: Sequence[str], limit: int, *, timeout: float = 300.0, stdin: str = "") -> Run:
    """Runs `command` in a cgroup of `limit` bytes; the kernel kills what it cannot hold. Raises NoCgroups."""
    with memory_cgroup(limit) as group:
        procs = group / "cgroup.procs"
        done = subprocess.run(
            ["/bin/sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *command],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=timeout,
        )
        return Run(done.returncode, done.stdout, done.stderr, _peak(group))


def _remove(group: Path) -> None:
    """Removes a cgroup, as soon as the kernel has done with those who were killed in it."""
    deadline = time.monotonic() + 10
    while True:
        try:
            group.rmdir()
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def uringinfer(*arguments: object) -> list[str]:
    """The command line of one of this package's commands."""
    return [sys.executable, "-m", "uringinfer", *map(str, arguments)]


def _peak(group: Path) -> int:
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        if (group / name).exists():
            return int((group / name).read_text())
    return 0
