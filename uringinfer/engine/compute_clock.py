"""Clocks what a token costs the processor: passes over a sample of the model's own weights.

A pass here is a real one, of the same model through the same trunk and expert cache as in a run: products,
attention, norms, routers and everything between them. Only the memory is smaller than the model
(`weights_sample`), so the values that come out mean nothing, and the time is that of a run.

What a token costs with every weight in memory is clocked first. What an expert costs is the difference
between passes that use all of a token's experts and passes that use another number of them; what guessing
costs, the difference between passes that guess and passes that do not. What reads cost the processor (a slot
is given up, the read asked for, its result taken; threads that slept are woken, what was just read is in no
cache, and what is computed meanwhile shares the memory with the drive) is what passes with real reads take
longer, without their waits: reads of experts for one, segments of the trunk for another.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from uringinfer.container.container import Container
from uringinfer.engine.loading import OpenModel
from uringinfer.engine.session import Session
from uringinfer.engine.weights_sample import Sample, arena_bytes, sampled
from uringinfer.kernels import Kernels
from uringinfer.models import model_from_config
from uringinfer.models.base import Model
from uringinfer.planning.grants import lacking, room
from uringinfer.planning.machine import Machine
from uringinfer.planning.memory import HUGE_PAGE
from uringinfer.residency.expert_statistics import ExpertStatistics
from uringinfer.residency.experts import ExpertCache
from uringinfer.residency.trunk import Trunk

SAMPLE_BYTES = 256 << 20
"""Of the trunk, and as much of the experts: more than the caches of most processors."""
_SESSIONS = 6
"""Conversations that are fed in turns, at most."""
_MOST = 0.99
"""Of a pass that can be the experts': something is always left for the trunk."""
_CONTEXT = 64
"""Positions of the conversation that is fed; then a new one begins."""


@dataclass(frozen=True, slots=True)
class ComputeSeconds:
    """What the processor takes for a token with every weight in memory: `trunk` seconds for all that belongs
    to no expert, and `expert` for each use of one. Where something is not in memory, `guess` for guessing
    about a layer's experts, `read` for each read of one, `streamed` for each byte of the trunk that was
    read."""

    trunk: float
    expert: float = 0.0
    guess: float = 0.0
    read: float = 0.0
    streamed: float = 0.0


@dataclass(slots=True)
class _Passes:
    """Passes of `model` with `experts`, guessing with a `lookahead`; of each, the seconds without its waits,
    the bytes of the trunk that it read, and its reads of experts."""

    model: Model
    trunk: Trunk
    experts: ExpertCache | None = None
    lookahead: int = 0
    seconds: list[float] = field(default_factory=list)
    streamed: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)

    def step(self, session: Session, token: int, clock: Callable[[], float]) -> None:
        if self.experts is not None:
            self.experts.lookahead = self.lookahead
        before, begin = self._counted(), clock()
        session.step(token)
        end, after = clock(), self._counted()
        self.seconds.append(end - begin - (after[0] - before[0]))
        self.streamed.append(after[1] - before[1])
        self.reads.append(after[2] - before[2])

    def forget(self) -> None:
        """Forgets all passes until now."""
        for noted in (self.seconds, self.streamed, self.reads):
            noted.clear()

    def _counted(self) -> tuple[float, int, int]:
        """Seconds of waits, bytes of the trunk and experts that were read."""
        trunk = self.trunk.statistics()
        experts = self.experts.statistics() if self.experts is not None else ExpertStatistics()
        waited = trunk.ring_wait_seconds + experts.wait_seconds
        return waited, trunk.streamed_bytes, experts.misses + experts.guesses


def sample_within(opened: OpenModel, budget: int | None) -> int:
    """The largest sample, of `SAMPLE_BYTES` at most, with which `clock_compute` stays within `budget` and
    what this process may use. Raises BudgetError if the smallest does not."""
    machine = Machine.read()
    context = min(_CONTEXT, opened.model.max_context)
    sizes = opened.sizes(context, 1)
    beside = _SESSIONS * sizes.state_bytes + sizes.scratch_bytes + HUGE_PAGE
    most = room(machine, budget) - beside
    sample = SAMPLE_BYTES
    while arena_bytes(opened.container, sample) > most:
        if not sample:
            raise lacking("a measurement", beside + arena_bytes(opened.container, 0), machine, budget)
        sample = sample // 2 if sample > 1 << 20 else 0
    return sample


def clock_compute(
    container: Container,
    model: Model,
    kernels: Kernels,
    seconds: float,
    *,
    lookahead: int = 0,
    sample_bytes: int = SAMPLE_BYTES,
    clock: Callable[[], float] = time.perf_counter,
) -> ComputeSeconds:
    """What one token of `model` costs, from passes over at least `seconds`, with experts twice as long;
    `lookahead` as in a run.

    Raises IntegrityError for reads that fail.
    """
    with sampled(container, kernels, lookahead, sample_bytes) as sample:
        return _clock_sample(container, model, sample, lookahead, seconds, clock)


def _clock_sample(
    container: Container,
    model: Model,
    sample: Sample,
    lookahead: int,
    seconds: float,
    clock: Callable[[], float],
) -> ComputeSeconds:
    banks = container.manifest.banks
    whole = _Passes(model, sample.trunk, sample.experts)
    streaming = _Passes(model, sample.streaming, sample.experts)
    # the ring reads ahead behind its pass: what comes next is disturbed, and counts for nothing
    stream = [streaming, _Passes(model, sample.trunk, sample.experts)]
    if sample.reading is None:
        _take_turns(container, [whole, *stream], seconds, clock)
        return ComputeSeconds(
            statistics.fmean(whole.seconds), streamed=_each(streaming, whole, streaming.streamed)
        )
    used, least = model.experts_per_token, min(bank.num_experts for bank in banks)
    other = 1 if used > 1 else min(2, least)
    fewer = _Passes(
        model_from_config(container.manifest.config, experts_per_token=other), sample.trunk, sample.experts
    )
    guessing = _Passes(model, sample.trunk, sample.experts, lookahead)
    reading = _Passes(model, sample.reading, sample.missing_experts, lookahead)
    _take_turns(container, [whole, fewer, guessing, reading, *stream], 2 * seconds, clock)
    # a run takes the mean, with every pass that was disturbed; the difference of two means would be all noise
    mean = statistics.fmean(whole.seconds)
    typical, compared = (statistics.median(passes.seconds) for passes in (whole, fewer))
    # an only expert is used always, like the trunk
    of_experts = used / (used - other) * (typical - compared) / typical if other != used else 0.0
    expert_share = min(max(0.0, of_experts), _MOST)
    return ComputeSeconds(
        trunk=(1 - expert_share) * mean,
        expert=expert_share * mean / (len(banks) * used),
        guess=_each(guessing, whole, [len(banks) - 1]),
        read=_each(reading, guessing, reading.reads),
        streamed=_each(streaming, whole, streaming.streamed),
    )


def _each(passes: _Passes, others: _Passes, counts: Sequence[int]) -> float:
    """How much longer `passes` typically take than `others`, for each of the mean of `counts`: seconds, at
    least 0.

    The machine's speed drifts by more than what is looked for; two passes of one turn have it in common."""
    pairs = zip(passes.seconds, others.seconds, strict=True)
    longer, count = statistics.median(first - second for first, second in pairs), statistics.fmean(counts)
    return max(0.0, longer) / count if count else 0.0


def _take_turns(
    container: Container, kinds: Sequence[_Passes], seconds: float, clock: Callable[[], float]
) -> None:
    """One token with each of `kinds` after the other, for at least `seconds`: whatever else the machine does
    slows all of them. The first turn is not counted."""
    model, tokens = kinds[0].model, np.random.default_rng(0)
    context = min(_CONTEXT, model.max_context)
    began, is_warm = clock(), False
    while True:
        sessions = [Session(passes.model, passes.trunk, container, context, 1) for passes in kinds]
        for token in tokens.integers(model.vocab_size, size=context):
            for session, passes in zip(sessions, kinds, strict=True):
                passes.step(session, int(token), clock)
                if not is_warm:
                    passes.forget()
            if is_warm and clock() - began >= seconds:
                return
            is_warm = True
