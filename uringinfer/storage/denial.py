"""Why io_uring, or a part of it, is not there, and what to do about it. Pure, but for /proc.

One error number has several causes: EPERM comes from a sysctl or from a seccomp filter, ENOSYS from an old
kernel or, again, from a filter. /proc tells them apart.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

from uringinfer.units import format_size


@dataclass(frozen=True, slots=True)
class Denial:
    """Why something cannot be used, and the remedy; both in words, without a final stop."""

    reason: str
    remedy: str


SWITCHED_OFF = Denial(
    reason="URINGINFER_NATIVE=0 forbids compiled modules", remedy="unset it to read with io_uring"
)

_FILTERED = Denial(
    reason="a seccomp filter denies it, as the default profiles of Docker and Podman do",
    remedy="run the container with --security-opt seccomp=PROFILE, a profile that allows io_uring_setup, "
    "io_uring_enter and io_uring_register",
)


def import_denial(error: ImportError) -> Denial:
    """Why the module `_uring` cannot be imported: it was not built, or liburing itself is gone."""
    if "liburing" in str(error):
        return Denial(
            reason=f"liburing cannot be loaded ({error})", remedy="install liburing2 (Debian, Ubuntu)"
        )
    return Denial(
        reason="the module uringinfer.storage._uring was not built",
        remedy="install a C compiler and liburing-dev (2.2 or later), then install uringinfer again",
    )


def setup_denial(number: int, *, proc: Path = Path("/proc"), release: str | None = None) -> Denial:
    """Why opening a ring failed with errno `number`; `release` is the kernel's, as in `uname -r`."""
    release = os.uname().release if release is None else release
    filtered = _status_field(proc, "Seccomp") == "2"
    if number == errno.EPERM:
        disabled = _read(proc / "sys/kernel/io_uring_disabled")
        if disabled in ("1", "2"):
            whom = "for all processes" if disabled == "2" else "for users outside kernel.io_uring_group"
            return Denial(
                reason=f"kernel.io_uring_disabled={disabled} forbids it {whom}",
                remedy="as root: sysctl kernel.io_uring_disabled=0",
            )
        if filtered:
            return _FILTERED
    if number == errno.ENOSYS:
        if filtered and _version(release) >= (5, 6):
            return _FILTERED
        return Denial(
            reason=f"the kernel ({release}) has none, or was built without it",
            remedy="use Linux 5.6 or later, better 6.1",
        )
    if number == errno.ENOMEM:
        # before Linux 5.12 the ring itself counted against this limit
        return Denial(
            reason=f"no memory for the ring ({os.strerror(number)}; kernel {release})",
            remedy="raise RLIMIT_MEMLOCK (ulimit -l), or ask for a smaller queue depth",
        )
    return Denial(
        reason=f"{os.strerror(number)} ({errno.errorcode.get(number, number)}), kernel {release}",
        remedy="look for a security module's message in the kernel's log (dmesg)",
    )


def registration_note(number: int, nbytes: int, limits: tuple[int, int]) -> str:
    """What it means that `nbytes` bytes of memory could not be registered; `limits` are RLIMIT_MEMLOCK's."""
    if number != errno.ENOMEM:
        return (
            f"the ring does not take {format_size(nbytes)} of memory as its buffers ({os.strerror(number)}); "
            "reads cost a little more CPU"
        )
    soft, hard = (format_size(limit) if limit >= 0 else "unlimited" for limit in limits)
    return (
        f"RLIMIT_MEMLOCK forbids to pin {format_size(nbytes)} for the ring (soft limit {soft}, hard limit "
        f"{hard}); reads cost a little more CPU; to raise it: ulimit -l, memlock in "
        "/etc/security/limits.conf, LimitMEMLOCK=infinity in a systemd unit, docker run --ulimit memlock=-1"
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _status_field(proc: Path, name: str) -> str | None:
    match = re.search(rf"^{name}:\s*(\S+)", _read(proc / "self/status") or "", re.MULTILINE)
    return match[1] if match else None


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:2])
