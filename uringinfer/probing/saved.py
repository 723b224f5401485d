"""Rates that were measured once, kept for each drive, for those who predict from them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from uringinfer.environment import cache_directory
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.planning.rates import LONE_BYTES, Rates
from uringinfer.probing.cells import Way
from uringinfer.probing.report import ProbeReport
from uringinfer.storage.device import find_device
from uringinfer.storage.regular import read_regular, replaceable, replacing
from uringinfer.storage.throughput import Pattern

_FILE_NAME = "drives.json"


@dataclass(frozen=True, slots=True)
class SavedRate:
    """The best rate of a drive, bytes per second, and how it was read. `latency` is what a read of 4 KiB
    takes alone, seconds; None where that was not measured."""

    bytes_per_second: float
    block_bytes: int
    queue_depth: int
    way: str
    latency: float | None = None

    def completing(self, rates: Rates) -> Rates:
        """`rates` with this drive's."""
        return replace(
            rates,
            drive=self.bytes_per_second,
            latency=self.latency,
            drive_origin="saved by probe",
            latency_origin="saved by probe",
        )


def save_rate(report: ProbeReport, directory: Path | None = None) -> Path:
    """Keeps the best rate of `report` for its drive, in `directory` or the cache; where.

    Raises EnvironmentError_ if no drive was measured or the file cannot be written.
    """
    best, device = report.best, report.conditions.device
    if best is None or device is None:
        raise EnvironmentError_(f"nothing to save: {report.verdict}", hint="probe a directory on a drive")
    path = (directory or cache_directory()) / _FILE_NAME
    drives = _load(path)
    drives[device.key] = asdict(
        SavedRate(
            bytes_per_second=best.measured.bytes_per_second,
            block_bytes=best.cell.block_bytes,
            queue_depth=best.cell.queue_depth,
            way=best.cell.way,
            latency=_latency(report),
        )
    )
    try:
        replaceable(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(drives, indent=1).encode())
    except OSError as error:
        raise EnvironmentError_(f"{path}: {error.strerror}", hint="set XDG_CACHE_HOME") from None
    return path


def saved_rate(path: str | os.PathLike[str], directory: Path | None = None) -> SavedRate | None:
    """What was saved for the drive that `path` lies on; None if it was never probed."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        device = find_device(fd)
    finally:
        os.close(fd)
    drives = _load((directory or cache_directory()) / _FILE_NAME)
    saved = drives.get(device.key) if device is not None else None
    try:
        return SavedRate(**saved) if isinstance(saved, dict) else None
    except TypeError:  # keys of another version
        return None


def _latency(report: ProbeReport) -> float | None:
    """Seconds of a small read that was alone, the way with least of them; None without such a cell.

    Only random ones past the page cache count: whoever reads in order is read ahead for.
    """
    lone = [
        row.measured.total.mean
        for row in report.rows
        if row.not_a_drive is None
        and row.cell.way is not Way.BUFFERED
        and (row.cell.pattern, row.cell.block_bytes, row.cell.queue_depth) == (Pattern.RANDOM, LONE_BYTES, 1)
    ]
    return min(lone, default=None)


def _load(path: Path) -> dict[str, Any]:
    """The drives in `path`; none if it is not there or was damaged: it can be measured again."""
    try:
        drives = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError, IntegrityError):
        return {}
    return drives if isinstance(drives, dict) else {}
