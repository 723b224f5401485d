"""Feeds a workload to a loaded engine, again and again, and keeps what the counters said each time.

The first feeding warms up and is not counted: one chunk of a prompt, or one token. Every repetition has a
session of its own; making it and feeding its depth is not timed. Where the engine has room for several
conversations, as many are fed together, each with tokens of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uringinfer.bench.workload import Workload
from uringinfer.engine.engine import Engine
from uringinfer.engine.session import Part, feed_together
from uringinfer.planning.memory import PlanRow
from uringinfer.report import BOUND_WAIT_SHARE, Bound, Phase, Setup
from uringinfer.residency.timeline import PassTimeline

Progress = Callable[[str, int, int], None]
"""Called with what is going on, repetitions done, repetitions in all."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one workload did: a phase for each repetition, in an engine set up like `setup`.

    `peak_rss` is the most memory, in bytes, that the process ever had until then; `memory` is where the plan
    put it. `timeline` is a typical pass, if that was recorded.
    """

    workload: Workload
    setup: Setup
    phases: tuple[Phase, ...]
    peak_rss: int
    notes: tuple[str, ...] = ()
    memory: tuple[PlanRow, ...] = ()
    timeline: PassTimeline | None = None

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each repetition."""
        return [phase.tokens / phase.seconds for phase in self.phases]

    @property
    def tokens_per_second(self) -> float:
        """Mean over the repetitions."""
        return statistics.fmean(self.rates)

    @property
    def deviation(self) -> float:
        """Sample standard deviation of tokens per second; 0 for a single repetition."""
        return statistics.stdev(self.rates) if len(self.phases) > 1 else 0.0

    @property
    def bytes_per_token(self) -> float:
        """Bytes taken from the drive for each token."""
        return self._sum("bytes_read") / self._sum("tokens")

    @property
    def used_bytes_per_token(self) -> float:
        """Bytes of weights that go through the processor for each token, wherever they were before."""
        record = self.setup.cache_bytes // self.setup.cache_slots if self.setup.cache_slots else 0
        experts = record * sum(phase.experts.used for phase in self.phases)
        return (self._sum("pinned_bytes") + self._sum("streamed_bytes") + experts) / self._sum("tokens")

    @property
    def hit_rate(self) -> float | None:
        """Share of the trunk's bytes that was in memory, 0 to 1; None if nothing was used."""
        used = self._sum("pinned_bytes") + self._sum("streamed_bytes")
        return self._sum("pinned_bytes") / used if used else None

    @property
    def expert_hit_rate(self) -> float | None:
        """Share of the experts that was in memory or on its way, 0 to 1; None for a dense model."""
        used = sum(phase.experts.used for phase in self.phases)
        return 1 - sum(phase.experts.misses for phase in self.phases) / used if used else None

    @property
    def wait_share(self) -> float:
        """Share of the time that went by waiting for reads, 0 to 1."""
        return self._sum("wait_seconds") / self._sum("seconds")

    @property
    def in_flight_share(self) -> float:
        """Share of the time with a read in flight, 0 to 1."""
        return self._sum("in_flight_seconds") / self._sum("seconds")

    @property
    def read_rate(self) -> float:
        """Bytes per second from the drive, over the whole time."""
        return self._sum("bytes_read") / self._sum("seconds")

    @property
    def cpu_seconds_per_gb(self) -> float | None:
        """Kernel CPU time for each 10^9 bytes read; None if nothing was read."""
        nbytes = self._sum("bytes_read")
        return self._sum("system_seconds") / (nbytes / 1e9) if nbytes else None

    @property
    def check_share(self) -> float:
        """Share of the time in which the computing thread checked reads, 0 to 1."""
        return self._sum("check_seconds") / self._sum("seconds")

    @property
    def bound_by(self) -> Bound:
        """What a faster run would need first, by the same rule as a run's report."""
        if self.wait_share < BOUND_WAIT_SHARE:
            return "memory or compute"
        return "drive" if self.setup.overlaps else "one read at a time"

    def to_json(self) -> dict[str, Any]:
        return {
            "test": self.workload.name,
            "kind": self.workload.kind,
            "tokens": self.workload.tokens,
            "depth": self.workload.depth,
            "tokens_per_second": self.tokens_per_second,
            "tokens_per_second_sd": self.deviation,
            "samples": self.rates,
            "bytes_per_token": self.bytes_per_token,
            "hit_rate": self.hit_rate,
            "expert_hit_rate": self.expert_hit_rate,
            "disk_wait_share": self.wait_share,
            "in_flight_share": self.in_flight_share,
            "system_seconds_per_gb": self.cpu_seconds_per_gb,
            "check_share": self.check_share,
            "peak_rss_bytes": self.peak_rss,
            "bound_by": self.bound_by,
            "setup": self.setup.to_json(),
            "notes": list(self.notes),
        }

    def _sum(self, name: str) -> float:
        values: list[float] = [getattr(phase, name) for phase in self.phases]
        return sum(values)


def measure(
    engine: Engine, workload: Workload, repetitions: int, progress: Progress | None = None
) -> tuple[Phase, ...]:
    """Feeds `workload` once to warm up and then `repetitions` times -> a phase for each of these.

    Raises UsageError if the workload does not fit into the engine's context, IntegrityError for failed reads.
    """
    ids = [workload.ids(engine.model.vocab_size, number) for number in range(engine.setup.parallel)]
    engine.session().feed(ids[0][: 1 if workload.kind == "tg" else engine.setup.chunk])
    phases = []
    for number in range(repetitions):
        if progress is not None:
            progress(workload.name, number, repetitions)
        phases.append(_repeat(engine, workload, ids))
    return tuple(phases)


def _repeat(engine: Engine, workload: Workload, ids: Sequence[Sequence[int]]) -> Phase:
    sessions = [engine.session() for _ in ids]
    for session, tokens in zip(sessions, ids, strict=True):
        session.check_room(workload.context)
        if workload.depth:
            session.feed(tokens[: workload.depth])
    # what one conversation has in a pass: a token, or its part of the chunk
    each = 1 if workload.kind == "tg" else max(1, engine.setup.chunk // len(sessions))
    before = engine.snapshot()
    for start in range(workload.depth, workload.context, each):
        feed_together(
            [
                Part(session, np.asarray(tokens[start : start + each], np.int64))
                for session, tokens in zip(sessions, ids, strict=True)
            ]
        )
    return Phase.between(before, engine.snapshot(), workload.tokens * len(sessions))
