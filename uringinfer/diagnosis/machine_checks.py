"""The checks of the machine: kernel, io_uring, native kernels, processor, memory and its limits.

Each check is a function of what it looks at; `proc` and `sys` are the roots of /proc and /sys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from uringinfer.build_facts import describe_kernels, liburing_version
from uringinfer.diagnosis.findings import Finding, note, ok, problem
from uringinfer.environment import native_enabled
from uringinfer.errors import EnvironmentError_
from uringinfer.kernels import open_kernels
from uringinfer.kernels.cpus import usable_cpus
from uringinfer.planning.machine import Machine
from uringinfer.storage.arena import HUGE_PAGE, Arena
from uringinfer.storage.denial import SWITCHED_OFF, Denial
from uringinfer.storage.uring import Ring, open_ring
from uringinfer.units import format_size

_OLDEST_KERNEL, _BEST_KERNEL = (5, 6), (6, 1)
_TRIAL_PAGES = 8
_CPU_FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd")
_CAP_IPC_LOCK = 14


def check_machine(proc: Path, sys: Path) -> Iterator[Finding]:
    """Every check of the machine, in the order in which a run meets them."""
    yield check_kernel(os.uname().release)
    ring = open_ring(1) if native_enabled() else SWITCHED_OFF
    yield check_io_uring(ring, liburing_version())
    if isinstance(ring, Ring):
        ring.close()
    yield check_kernels()
    yield check_processor(proc, sys)
    yield check_huge_pages(proc, sys)
    try:
        machine = Machine.read(proc, sys)
    except EnvironmentError_ as error:
        yield problem("memory", error.message, error.hint)
        return
    yield check_memory(machine)
    yield check_cgroup(machine)
    yield check_memlock(machine, proc)
    yield check_swap(machine)


def check_kernel(release: str) -> Finding:
    """Whether Linux `release` ("6.1.0-18-amd64") has what the reader can use."""
    version = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    if version < _OLDEST_KERNEL:
        return note(
            "kernel", f"Linux {release} has no io_uring that reads", "use Linux 5.6 or later, better 6.1"
        )
    if version < _BEST_KERNEL:
        return note(
            "kernel",
            f"Linux {release} tells no alignment for direct I/O and has no deferred completions",
            "Linux 6.1 or later reads with less CPU",
        )
    return ok("kernel", f"Linux {release}")


def check_io_uring(ring: Ring | Denial, liburing: str | None) -> Finding:
    """Whether a ring opens, and with which flags; without one, reads go on threads."""
    if isinstance(ring, Denial):
        return note("io_uring", f"cannot be used, threads read instead: {ring.reason}", ring.remedy)
    flags = ", ".join(ring.flags) or "no flags"
    return ok("io_uring", f"opens with {flags}; liburing {liburing or 'of unknown version'}")


def check_kernels() -> Finding:
    """Whether the native kernels are there; numpy computes the same many times slower."""
    kernels = open_kernels()
    if kernels.name == "native":
        return ok("kernels", describe_kernels())
    return problem(
        "kernels", "; ".join(["numpy computes, many times slower than native code", *kernels.notes])
    )


def check_processor(proc: Path, sys: Path) -> Finding:
    """Which vector instructions there are, and how many processors this process may use."""
    text = _read(proc / "cpuinfo")
    words = set(re.findall(r"\w+", " ".join(re.findall(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE))))
    found = [flag for flag in _CPU_FLAGS if flag in words]
    online = len(re.findall(r"^processor\s*:", text, re.MULTILINE))
    usable = usable_cpus(proc, sys / "fs" / "cgroup")
    message = f"{usable} of {online} processors; {' '.join(found) or 'no vector instructions known here'}"
    if usable < online:
        return note("processor", f"{message}; an affinity mask or a cgroup's quota takes the others")
    if not {"avx2", "asimd"} & words:
        return note("processor", f"{message}; kernels use their portable code, which is slower")
    return ok("processor", message)


def check_huge_pages(proc: Path, sys: Path) -> Finding:
    """Whether memory that is advised to be huge really is, by a trial of 16 MiB."""
    try:
        with Arena(_TRIAL_PAGES * HUGE_PAGE, proc=proc, sys=sys) as arena:
            huge = arena.huge_bytes()
            notes = arena.notes
    except (EnvironmentError_, OSError) as error:
        return problem("huge pages", str(error))
    if notes:
        return note("huge pages", notes[0])
    return ok("huge pages", f"{format_size(huge)} of {format_size(_TRIAL_PAGES * HUGE_PAGE)} on trial")


def check_memory(machine: Machine) -> Finding:
    """How much this process may use, and whether others hold much of it."""
    usable = f"{format_size(machine.usable_bytes)} of {format_size(machine.memory_total)} usable"
    message = f"{usable}, bounded by {machine.bounded_by}"
    if machine.memory_available < machine.memory_total / 2:
        held = format_size(machine.memory_total - machine.memory_available)
        return note(
            "memory", f"{message}; other processes hold {held}", "end them, or give a smaller --budget"
        )
    return ok("memory", message)


def check_cgroup(machine: Machine) -> Finding:
    """Every memory limit of the cgroups above this process."""
    limits = machine.cgroup_bounds
    if not limits:
        return ok("cgroup", "no memory limit")
    shown = ", ".join(f"{bound.name} = {format_size(bound.limit)}" for bound in limits)
    return ok("cgroup", f"{shown}; the default budget stays below")


def check_memlock(machine: Machine, proc: Path) -> Finding:
    """Whether the arena can be registered with the ring, which needs locked memory."""
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", _read(proc / "self" / "status"), re.MULTILINE)
    if capabilities and int(capabilities[1], 16) >> _CAP_IPC_LOCK & 1:
        return ok("memlock", "unlimited (CAP_IPC_LOCK)")
    if machine.memlock_soft is None:
        return ok("memlock", "unlimited")
    hard = "unlimited" if machine.memlock_hard is None else format_size(machine.memlock_hard)
    return note(
        "memlock",
        f"{format_size(machine.memlock_soft)} (hard limit {hard}); a larger arena is not registered with the"
        " ring, which costs a little CPU",
        "ulimit -l unlimited, LimitMEMLOCK=infinity of systemd, or memlock in /etc/security/limits.conf",
    )


def check_swap(machine: Machine) -> Finding:
    """Whether memory is being swapped: a weight that must be swapped in is slower than one that streams."""
    used = machine.swap_total - machine.swap_free
    if not machine.swap_total:
        return ok("swap", "none")
    message = f"{format_size(used)} of {format_size(machine.swap_total)} in use"
    if used > 0:
        return note("swap", f"{message}: memory is or was short", "give a smaller --budget, or free memory")
    return ok("swap", message)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
