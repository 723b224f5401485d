"""The result of a probe: rows, which of them are a drive's, the best, and fio's JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from uringinfer.probing.cells import ProbeCell, Way
from uringinfer.probing.conditions import Conditions
from uringinfer.probing.target import ModelReads
from uringinfer.storage.throughput import Latency, Measurement, Pattern
from uringinfer.units import format_rate, format_size

SCHEMA_VERSION = 1
_MOSTLY = 0.98  # of a file's bytes; a header block or two may be a hole or cached
_AS_GOOD = 0.98  # of the best rate: less in flight for the same rate is better


@dataclass(frozen=True, slots=True)
class Row:
    """One cell's numbers. `not_a_drive` says why they are not a drive's, None if they are."""

    cell: ProbeCell
    measured: Measurement
    cached_share: float
    not_a_drive: str | None


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """Everything that was found out; see `docs/cli.md` for the JSON."""

    conditions: Conditions
    model: ModelReads | None
    rows: tuple[Row, ...]

    @property
    def best(self) -> Row | None:
        """The row with the highest rate from a drive; among equals the one with least in flight."""
        rows = [row for row in self.rows if row.not_a_drive is None and row.measured.nbytes]
        top = max((row.measured.bytes_per_second for row in rows), default=0.0)
        good = [row for row in rows if row.measured.bytes_per_second >= _AS_GOOD * top]
        return min(good, key=lambda row: row.cell.block_bytes * row.cell.queue_depth, default=None)

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        best = self.best
        if best is None:
            reasons = dict.fromkeys(row.not_a_drive for row in self.rows if row.not_a_drive is not None)
            return f"no drive was measured: {'; '.join(reasons) or 'no cell fits into the file'}"
        rate = best.measured.bytes_per_second
        words = (
            f"best: {format_size(best.cell.block_bytes)} x QD {best.cell.queue_depth}, {best.cell.way}, "
            f"{best.cell.pattern} = {format_rate(rate)}"
        )
        if self.model is None or not self.model.bytes_per_token:
            return words
        per_token = self.model.bytes_per_token
        return (
            f"{words}; this model reads {per_token / 1e9:.3f} GB per token cold: "
            f"at most {rate / per_token:.2f} tokens/s"
        )

    def to_json(self) -> dict[str, Any]:
        """fio's names where fio has them: `jobs`, `job options`, `read`, `clat_ns`, `percentile`."""
        best = self.best
        return {
            "schema_version": SCHEMA_VERSION,
            "conditions": self.conditions.to_json(),
            "model": asdict(self.model) if self.model else None,
            "jobs": [_job(row, self.conditions.direct) for row in self.rows],
            "best": _name(best.cell) if best else None,
            "verdict": self.verdict,
        }


def judge_row(conditions: Conditions, measured: Measurement, cached_share: float) -> str | None:
    """Why a row's rate is not a drive's; None if nothing says so. `cached_share` of a direct read is 0."""
    if conditions.in_memory:
        return f"{conditions.filesystem} has no device behind it"
    if conditions.device is not None and conditions.device.stand_in is not None:
        return conditions.device.stand_in
    if conditions.data_share < _MOSTLY:
        return f"{1 - conditions.data_share:.0%} of the file are holes, with no device behind them"
    if cached_share > 1 - _MOSTLY:
        return f"{cached_share:.0%} were in the page cache"
    if measured.errors:
        return f"{measured.errors} of {measured.reads} reads failed"
    name, ceiling = conditions.ceiling
    if measured.bytes_per_second > ceiling:
        return f"faster than {name} ({format_rate(ceiling)}): cached somewhere"
    return None


def _name(cell: ProbeCell) -> str:
    return f"{cell.way}-{cell.pattern}-{cell.block_bytes}-qd{cell.queue_depth}".replace(" ", "-")


def _job(row: Row, direct: bool) -> dict[str, Any]:
    cell, measured = row.cell, row.measured
    gigabytes = max(measured.nbytes, 1) / 1e9
    runtime = max(measured.seconds, 1e-9)
    registered = int(cell.way is Way.REGISTERED)
    return {
        "jobname": _name(cell),
        "error": measured.errors,
        "job options": {
            "rw": "randread" if cell.pattern is Pattern.RANDOM else "read",
            "bs": str(cell.block_bytes),
            "iodepth": str(cell.queue_depth),
            "ioengine": "io_uring" if cell.way.needs_ring else "psync",
            "direct": str(int(direct and cell.way is not Way.BUFFERED)),
            "fixedbufs": str(registered),
            "registerfiles": str(registered),
        },
        "read": {
            "io_bytes": measured.nbytes,
            "bw_bytes": round(measured.bytes_per_second),
            "iops": measured.reads_per_second,
            "runtime": round(measured.seconds * 1e3),
            "total_ios": measured.reads,
            "short_ios": measured.short_reads,
            "slat_ns": _nanoseconds(measured.submit),
            "clat_ns": _nanoseconds(measured.complete),
            "lat_ns": _nanoseconds(measured.total),
        },
        "usr_cpu": 100 * measured.user_seconds / runtime,
        "sys_cpu": 100 * measured.system_seconds / runtime,
        "user_ms_per_gb": measured.user_seconds * 1e3 / gigabytes,
        "system_ms_per_gb": measured.system_seconds * 1e3 / gigabytes,
        "first_tenth_bw_bytes": round(measured.first_tenth),
        "last_tenth_bw_bytes": round(measured.last_tenth),
        "cached_share": row.cached_share,
        "not_a_drive": row.not_a_drive,
    }


def _nanoseconds(latency: Latency) -> dict[str, Any]:
    return {
        "max": round(latency.max * 1e9),
        "mean": latency.mean * 1e9,
        "percentile": {
            "50.000000": round(latency.p50 * 1e9),
            "90.000000": round(latency.p90 * 1e9),
            "99.000000": round(latency.p99 * 1e9),
            "99.900000": round(latency.p99_9 * 1e9),
        },
    }
