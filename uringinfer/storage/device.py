"""The block device behind a file, and the fastest that its bus can be.

Everything comes from sysfs and mountinfo; both roots are parameters. The ceiling is for recognising numbers
that no drive can have given, so it is rounded up: the bus' raw rate, the sum of a set's members.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

# PCI Express from 3.0 on loses 2 of 130 bits to its code, before that 2 of 10
_OLD_PCIE_CODE, _PCIE_CODE, _OLD_PCIE_GT = 8 / 10, 128 / 130, 5.0


@dataclass(frozen=True, slots=True)
class Device:
    """`name` as in /dev; `bus` says where `ceiling` (bytes per second) comes from. None where unknown.

    `cached_by` says what stands in for a drive: the page cache behind a loop device, memory.
    `key` tells this drive from others on this machine, also after a restart as far as it has a serial number.
    """

    name: str
    model: str | None
    bus: str | None
    ceiling: float | None
    key: str
    cached_by: str | None = None

    @property
    def stand_in(self) -> str | None:
        """In words what is read in place of a drive, None for a drive."""
        return None if self.cached_by is None else f"{self.name} is read through {self.cached_by}"


def find_device(fd: int, *, sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> Device | None:
    """The whole device (not the partition) that holds `fd`, or that `fd` is; None if there is none."""
    status = os.fstat(fd)
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    directory = _directory(number, sys)
    if directory is None:
        # btrfs and others give their files a number of their own: ask which device was mounted
        source = _mounted_source(number, proc)
        directory = _directory(source, sys) if source is not None else None
    if directory is None:
        return None
    if (directory / "partition").exists():
        directory = directory.parent
    model = _text(directory / "device/model")
    serial = _text(directory / "device/serial") or _text(directory / "wwid")
    bus, ceiling = _ceiling(directory)
    return Device(
        name=directory.name,
        model=model,
        bus=bus,
        ceiling=ceiling,
        key=" ".join(filter(None, [directory.name if serial is None else None, model, serial])),
        cached_by=_cached_by(directory),
    )


def _cached_by(directory: Path) -> str | None:
    if (directory / "loop/backing_file").exists() and _text(directory / "loop/dio") != "1":
        return "the page cache"
    return "memory" if re.fullmatch(r"z?ram\d+", directory.name) else None


def _directory(number: int, sys: Path) -> Path | None:
    link = sys / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    return link.resolve() if link.exists() else None


def _mounted_source(number: int, proc: Path) -> int | None:
    wanted = f"{os.major(number)}:{os.minor(number)}"
    for line in (_text(proc / "self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2:3] == [wanted] and len(right.split()) > 1:
            try:
                return Path(right.split()[1]).stat().st_rdev or None
            except OSError:
                return None
    return None


def _ceiling(directory: Path) -> tuple[str | None, float | None]:
    """The narrowest bus between the device and the processor; of a set of devices, the sum of theirs."""
    slaves = directory / "slaves"
    members = [member.resolve() for member in slaves.iterdir()] if slaves.is_dir() else []
    if members:
        ceilings = [_ceiling(m.parent if (m / "partition").exists() else m)[1] for m in members]
        known = [ceiling for ceiling in ceilings if ceiling is not None]
        return (f"{len(members)} devices", sum(known)) if len(known) == len(members) else (None, None)
    found = []
    for ancestor in (directory, *directory.parents):
        found += [*_pcie(ancestor), *_sata(ancestor), *_usb(ancestor)]
    return min(found, key=lambda bus: bus[1], default=(None, None))


def _pcie(directory: Path) -> list[tuple[str, float]]:
    speed = re.match(r"([\d.]+) GT/s", _text(directory / "current_link_speed") or "")
    width = _text(directory / "current_link_width") or ""
    if speed is None or not width.isdecimal() or width == "0":
        return []
    transfers = float(speed[1])
    code = _OLD_PCIE_CODE if transfers <= _OLD_PCIE_GT else _PCIE_CODE
    return [(f"PCIe {transfers:g} GT/s x{width}", transfers * 1e9 * int(width) * code / 8)]


def _sata(directory: Path) -> list[tuple[str, float]]:
    """An ATA port's directory holds link*/ata_link/link*/sata_spd, such as "6.0 Gbps"."""
    if not re.fullmatch(r"ata\d+", directory.name):
        return []
    speeds = [re.match(r"([\d.]+) Gbps", _text(f) or "") for f in directory.glob("link*/ata_link/*/sata_spd")]
    return [(f"SATA {speed[0]}", float(speed[1]) * 1e9 * 8 / 10 / 8) for speed in speeds if speed]


def _usb(directory: Path) -> list[tuple[str, float]]:
    """A USB device's directory holds its speed in Mbit/s."""
    speed = _text(directory / "speed") or ""
    if not (directory / "idVendor").exists() or not speed.isdecimal():
        return []
    return [(f"USB {speed} Mbit/s", int(speed) * 1e6 / 8)]


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
