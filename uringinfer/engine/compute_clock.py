"""Clocks what a token costs where nothing has to be read: passes over a sample of the model's own weights.

A pass here is a real one, of the same model through the same trunk and expert cache as in a run: products,
attention, norms, routers and everything between them. Only the memory is smaller than the model. Segments
of the same layout share the memory of a few of them, and so do experts; there are more of them than a
processor's cache holds, where the model has that many. So the values that come out mean nothing, and the time
is that of a run that finds every weight in memory.

What an expert costs is the difference between passes that use all of a token's experts and passes that use
another number of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from uringinfer.container.codebooks import read_codebooks
from uringinfer.container.container import Container
from uringinfer.container.manifest import Segment
from uringinfer.engine.expert_loading import ExpertFiles
from uringinfer.engine.session import Session
from uringinfer.kernels import Kernels
from uringinfer.models import model_from_config
from uringinfer.models.base import Model
from uringinfer.residency.embedding import row_sizes
from uringinfer.residency.experts import ExpertCache
from uringinfer.residency.policies import DEFAULT_POLICY, make_policy
from uringinfer.residency.trunk import Trunk, TrunkMemory
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import open_file
from uringinfer.storage.reader import (
    Bytes,
    Priority,
    Reader,
    ReaderStatistics,
    ReadRequest,
    Ticket,
    open_reader,
)

SAMPLE_BYTES = 256 << 20
"""Of the trunk, and as much of the experts: more than the caches of most processors."""
_MOST = 0.99
"""Of a pass that can be the experts': something is always left for the trunk."""
_CONTEXT = 64
"""Positions of the conversation that is fed; then a new one begins."""


@dataclass(frozen=True, slots=True)
class ComputeSeconds:
    """Seconds of a token with every weight in memory: all that belongs to no expert, and each use of one."""

    trunk: float
    expert: float = 0.0


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
    """What one token of `model` costs, from passes over at least `seconds`; `lookahead` as in a run.

    Raises IntegrityError for reads that fail.
    """
    banks = container.manifest.banks
    used = model.experts_per_token
    least = min((bank.num_experts for bank in banks), default=0)
    other = 1 if used > 1 else min(2, least)
    models = [model]
    if banks and other != used:  # an only expert is used always, like the trunk
        models.append(model_from_config(container.manifest.config, experts_per_token=other))
    with _sampled_trunk(container, kernels, lookahead, sample_bytes) as trunk:
        taken = _clock(container, models, trunk, seconds, clock)
    # a run takes the mean, with every pass that was disturbed; the difference of two means would be all noise
    whole = statistics.fmean(taken[0])
    if len(models) == 1:
        return ComputeSeconds(whole)
    typical, compared = map(statistics.median, taken)
    of_experts = used / (used - other) * (typical - compared) / typical
    expert_share = min(max(0.0, of_experts), _MOST)
    return ComputeSeconds((1 - expert_share) * whole, expert_share * whole / (len(banks) * used))


def _clock(
    container: Container, models: Sequence[Model], trunk: Trunk, seconds: float, clock: Callable[[], float]
) -> list[list[float]]:
    """Seconds of each pass of one token, for each of `models`.

    They take turns for at least `seconds`, so that whatever else the machine does slows all of them. The
    first turn is not counted."""
    tokens = np.random.default_rng(0)
    context = min(_CONTEXT, models[0].max_context)
    taken: list[list[float]] = [[] for _ in models]
    began = clock()
    while True:
        sessions = [Session(model, trunk, container.fingerprint, context, 1) for model in models]
        for token in tokens.integers(models[0].vocab_size, size=context):
            for session, times in zip(sessions, taken, strict=True):
                start = clock()
                session.step(int(token))
                times.append(clock() - start)
            if len(taken[0]) > 1 and clock() - began >= seconds:
                return [times[1:] for times in taken]


@contextmanager
def _sampled_trunk(
    container: Container, kernels: Kernels, lookahead: int, sample_bytes: int
) -> Iterator[Trunk]:
    """The container's trunk, and its experts, in the memory of a sample of them."""
    segments = container.segments
    homes = _homes(segments, sample_bytes)
    staging = row_sizes(segments).staging_bytes
    with ExitStack() as stack:
        file = stack.enter_context(open_file(container.trunk_path))
        codebooks = read_codebooks(container.path, container.manifest)
        banks = ExpertFiles(container, codebooks) if container.manifest.banks else None
        slots, slot_bytes = 0, 0
        if banks is not None:
            stack.callback(banks.close)
            slot_bytes = banks.records.slot_bytes
            total = sum(bank.num_experts for bank in container.manifest.banks)
            slots = max(1, min(total, sample_bytes // slot_bytes))
        sampled = sorted(set(homes.values()))
        nbytes = sum(segments[number].nbytes for number in sampled) + staging + slots * slot_bytes
        arena = stack.enter_context(Arena(nbytes))
        reader = open_reader(arena=arena, files=[file, *(banks.files if banks else ())])
        stack.callback(reader.close)
        memory = {number: arena.carve(segments[number].nbytes) for number in sampled}
        reads = [ReadRequest(file, segments[number].offset, memory[number]) for number in sampled]
        reader.wait(reader.submit(reads))
        experts = None
        if banks is not None:
            regions = [arena.carve(slot_bytes) for _ in range(slots)]
            experts = _sampled_experts(container, banks, reader, regions, lookahead)
            stack.callback(experts.close)
        pinned = {number: memory[home] for number, home in homes.items()}
        trunk = Trunk(
            segments,
            file,
            reader,
            kernels,
            TrunkMemory(pinned, (), arena.carve(staging)),
            experts=experts,
            codebooks=codebooks,
        )
        stack.callback(trunk.close)
        yield trunk


def _homes(segments: Sequence[Segment], most: int) -> dict[int, int]:
    """For every streamed segment the one whose memory it uses: itself, or one of the same layout in turn.

    Of each layout one has memory, and others as long as all take at most `most` bytes."""
    first: dict[object, int] = {}
    streamed = [number for number, segment in enumerate(segments) if segment.streamed]
    for number in streamed:
        first.setdefault(_layout(segments[number]), number)
    left = most - sum(segments[number].nbytes for number in first.values())
    alike: dict[object, list[int]] = {layout: [number] for layout, number in first.items()}
    turns = dict.fromkeys(alike, 0)
    homes = {}
    for number in streamed:
        layout = _layout(segments[number])
        if number != first[layout] and segments[number].nbytes <= left:
            left -= segments[number].nbytes
            alike[layout].append(number)
            homes[number] = number
            continue
        homes[number] = alike[layout][turns[layout] % len(alike[layout])]
        turns[layout] += 1
    return homes


def _layout(segment: Segment) -> object:
    return tuple((part.offset, part.nbytes, part.format, part.rows, part.cols) for part in segment.parts)


def _sampled_experts(
    container: Container, banks: ExpertFiles, reader: Reader, regions: Sequence[Bytes], lookahead: int
) -> ExpertCache:
    """A cache with a slot for every expert, in `regions`, which are filled with some of them for good."""
    all_banks = container.manifest.banks
    keys = [(bank.layer, expert) for bank in all_banks for expert in range(bank.num_experts)]
    # evenly from all layers
    chosen = keys[:: max(1, len(keys) // len(regions))]
    requests = [
        banks.records.request(key, region, Priority.TRUNK)
        for key, region in zip(chosen, regions, strict=False)
    ]
    reader.wait(reader.submit(requests))
    slots = [regions[number % len(regions)] for number in range(len(keys))]
    policy = make_policy(DEFAULT_POLICY, banks.records.layers, banks.records.num_experts)
    cache = ExpertCache(banks.records, _NothingToRead(), slots, policy, lookahead=lookahead)
    cache.preload(keys)
    return cache


@dataclass(frozen=True, slots=True)
class _Done:
    done: bool = True


class _NothingToRead:
    """A `Reader` whose reads are complete at once and move nothing: what is wanted is there already."""

    name = "sample"
    overlaps = False

    def __init__(self) -> None:
        self.notes: list[str] = []

    def submit(self, requests: Sequence[ReadRequest]) -> Ticket:
        return _Done()

    def submit_each(self, requests: Sequence[ReadRequest]) -> Sequence[Ticket]:
        return [_Done() for _ in requests]

    def wait(self, ticket: Ticket) -> None:
        pass

    def withdraw(self, ticket: Ticket) -> bool:
        return False

    def poll(self) -> None:
        pass

    def statistics(self) -> ReaderStatistics:
        return ReaderStatistics()

    def close(self) -> None:
        pass
