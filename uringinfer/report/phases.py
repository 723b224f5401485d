"""Counters at two moments of a run, and what happened between them.

The waits are those of the thread that computes: while it waits, nothing else of this process would have run.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from uringinfer.planning.paging import PagingCounters
from uringinfer.residency.checker import CheckStatistics
from uringinfer.residency.expert_statistics import ExpertStatistics
from uringinfer.residency.trunk import TrunkStatistics

Bound = Literal["drive", "one read at a time", "memory or compute"]

BOUND_WAIT_SHARE = 0.25
"""A phase that waits for the drive for more than this share of its time is bound by reading."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at one moment: seconds of a monotonic clock, bytes, seconds of CPU time of the process."""

    seconds: float
    trunk: TrunkStatistics
    experts: ExpertStatistics
    user_seconds: float
    system_seconds: float
    bytes_written: int | None
    paging: PagingCounters = field(default_factory=PagingCounters)
    checks: CheckStatistics = field(default_factory=CheckStatistics)

    @classmethod
    def take(
        cls,
        trunk: TrunkStatistics,
        experts: ExpertStatistics | None = None,
        checks: CheckStatistics | None = None,
        *,
        proc: Path = Path("/proc"),
    ) -> Snapshot:
        """The process' counters now. `bytes_written` is None where the kernel keeps no count of it."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(
            time.perf_counter(),
            trunk,
            experts or ExpertStatistics(),
            usage.ru_utime,
            usage.ru_stime,
            _storage_bytes_written(proc),
            PagingCounters.take(proc),
            checks or CheckStatistics(),
        )


def _storage_bytes_written(proc: Path) -> int | None:
    try:
        lines = (proc / "self/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split(":")[1]) for line in lines if line.startswith("write_bytes:")), None)


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run, the prompt or the decoding: `tokens` fed in `passes` passes over the weights.

    `pinned_bytes` and `streamed_bytes` are what the passes used from memory and from the drive,
    `embedding_bytes` what rows read on demand took, `experts` what the expert cache did. `wait_seconds` of
    `seconds` went by waiting for reads; in `in_flight_seconds` of them a read was in flight, until it was
    noticed that it was over. `checked_bytes` of what was read were checked, for which the computing thread
    spent or waited `check_seconds`; `repeated_reads` were damaged, and right when they were made again.
    """

    tokens: int
    passes: int
    seconds: float
    wait_seconds: float
    in_flight_seconds: float
    pinned_bytes: int
    streamed_bytes: int
    embedding_bytes: int
    experts: ExpertStatistics
    user_seconds: float
    system_seconds: float
    paging: PagingCounters = field(default_factory=PagingCounters)
    checked_bytes: int = 0
    check_seconds: float = 0.0
    repeated_reads: int = 0

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot, tokens: int) -> Phase:
        first, last = before.trunk, after.trunk
        experts = after.experts.since(before.experts)
        return cls(
            tokens=tokens,
            passes=last.passes - first.passes,
            seconds=after.seconds - before.seconds,
            wait_seconds=last.wait_seconds - first.wait_seconds + experts.wait_seconds,
            in_flight_seconds=last.in_flight_seconds - first.in_flight_seconds,
            pinned_bytes=last.pinned_bytes - first.pinned_bytes,
            streamed_bytes=last.streamed_bytes - first.streamed_bytes,
            embedding_bytes=last.embedding_bytes - first.embedding_bytes,
            experts=experts,
            user_seconds=after.user_seconds - before.user_seconds,
            system_seconds=after.system_seconds - before.system_seconds,
            paging=after.paging.since(before.paging),
            checked_bytes=after.checks.nbytes - before.checks.nbytes,
            check_seconds=after.checks.seconds - before.checks.seconds,
            repeated_reads=after.checks.repeated - before.checks.repeated,
        )

    @property
    def bytes_read(self) -> int:
        """Bytes that the phase took from the drive."""
        experts = self.experts.demanded_bytes + self.experts.guessed_bytes
        return self.streamed_bytes + self.embedding_bytes + experts

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.seconds if self.tokens and self.seconds > 0 else None

    @property
    def bytes_per_token(self) -> float | None:
        return self.bytes_read / self.tokens if self.tokens else None

    @property
    def hit_rate(self) -> float | None:
        """Share of the used weights' bytes that was in memory already, 0 to 1."""
        used = self.pinned_bytes + self.streamed_bytes
        return self.pinned_bytes / used if used else None

    @property
    def wait_share(self) -> float | None:
        """Share of the time that went by waiting for reads, 0 to 1."""
        return self.wait_seconds / self.seconds if self.seconds > 0 else None

    @property
    def in_flight_share(self) -> float | None:
        """Share of the time with a read in flight, 0 to 1."""
        return self.in_flight_seconds / self.seconds if self.seconds > 0 else None

    @property
    def in_flight_rate(self) -> float | None:
        """Bytes per second from the drive while a read was in flight."""
        return self.bytes_read / self.in_flight_seconds if self.in_flight_seconds > 0 else None

    @property
    def read_rate(self) -> float | None:
        """Bytes per second from the drive, over the whole phase."""
        return self.bytes_read / self.seconds if self.seconds > 0 else None

    @property
    def system_seconds_per_gb(self) -> float | None:
        """Kernel CPU time for each 10^9 bytes read; None if nothing was read."""
        return self.system_seconds / (self.bytes_read / 1e9) if self.bytes_read else None

    def bound_by(self, *, overlaps: bool) -> Bound:
        """What a faster run would need first."""
        if (self.wait_share or 0.0) < BOUND_WAIT_SHARE:
            return "memory or compute"
        return "drive" if overlaps else "one read at a time"

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "passes": self.passes,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "bytes_read": self.bytes_read,
            "bytes_per_token": self.bytes_per_token,
            "hit_rate": self.hit_rate,
            "disk_wait_share": self.wait_share,
            "in_flight_share": self.in_flight_share,
            "in_flight_bytes_per_second": self.in_flight_rate,
            "read_bytes_per_second": self.read_rate,
            "experts": self.experts.to_json() if self.experts.used else None,
            "user_seconds": self.user_seconds,
            "system_seconds": self.system_seconds,
            "system_seconds_per_gb": self.system_seconds_per_gb,
            **self.paging.to_json(),
            "checked_bytes": self.checked_bytes,
            "check_seconds": self.check_seconds,
            "repeated_reads": self.repeated_reads,
        }
