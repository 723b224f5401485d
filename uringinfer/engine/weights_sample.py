"""A model in the memory of a sample of its weights: for clocking passes of models larger than memory.

Segments of the same layout share the memory of a few of them, and so do experts; there are more of them than
a processor's cache holds, where the model has that many. So the values that come out of a pass mean nothing,
and what it does is what a run does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from uringinfer.container.binding import bind_codebooks
from uringinfer.container.container import Container
from uringinfer.container.manifest import Segment
from uringinfer.engine.expert_loading import ExpertFiles
from uringinfer.kernels import Kernels
from uringinfer.residency.embedding import row_sizes
from uringinfer.residency.experts import ExpertCache
from uringinfer.residency.policies import DEFAULT_POLICY, ExpertKey, make_policy
from uringinfer.residency.records import ExpertRecords
from uringinfer.residency.trunk import Trunk, TrunkMemory
from uringinfer.residency.turn import Resident
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import open_file
from uringinfer.storage.reader import Bytes, Priority, Reader, ReadRequest, open_reader

_T = TypeVar("_T")

_PRESENT = 0.75
"""Share of the experts that are there where others are read: enough of them that the drive keeps up."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`trunk` finds all weights in memory; its `experts` guess about every turn once their `lookahead` is
    set. `streaming` reads some of its segments through a ring of two slots, and finds the rest and the
    same `experts` in memory. `reading` finds three quarters of its `missing_experts` in memory, and reads the
    others."""

    trunk: Trunk
    streaming: Trunk
    experts: ExpertCache | None
    reading: Trunk | None
    missing_experts: ExpertCache | None


@contextmanager
def sampled(container: Container, kernels: Kernels, lookahead: int, sample_bytes: int) -> Iterator[Sample]:
    """The container's trunk and experts in `sample_bytes` of memory for each of the two, or what one of each
    layout takes; see `arena_bytes`. Raises IntegrityError for reads that fail."""
    container = bind_codebooks(container)
    segments = container.segments
    homes = _homes(segments, sample_bytes)
    staging = row_sizes(segments).staging_bytes
    with ExitStack() as stack:
        file = stack.enter_context(open_file(container.trunk_path))
        banks = ExpertFiles(container) if container.manifest.banks else None
        slot_bytes = banks.records.slot_bytes if banks is not None else 0
        slots = _slots(container, slot_bytes, sample_bytes)
        if banks is not None:
            stack.callback(banks.close)
        numbers = sorted(set(homes.values()))
        streaming = _streaming(segments, sample_bytes)
        ring_slot = max(segments[number].nbytes for number in streaming)
        arena = stack.enter_context(Arena(_nbytes(segments, homes, ring_slot, slots * slot_bytes)))
        reader = open_reader(arena=arena, files=[file, *(banks.files if banks else ())])
        stack.callback(reader.close)
        memory = {number: arena.carve(segments[number].nbytes) for number in numbers}
        reads = [ReadRequest(file, segments[number].offset, memory[number]) for number in numbers]
        reader.wait(reader.submit(reads))
        in_memory = {number: memory[home] for number, home in homes.items()}
        all_pinned = TrunkMemory(in_memory, (), arena.carve(staging))
        ring = tuple(arena.carve(ring_slot) for _ in range(2))
        rest = {number: region for number, region in in_memory.items() if number not in streaming}
        some_pinned = TrunkMemory(rest, ring, all_pinned.staging)

        def make_trunk(memory: TrunkMemory, experts: ExpertCache | None) -> Trunk:
            trunk = Trunk(segments, file, reader, kernels, memory, experts=experts)
            stack.callback(trunk.close)
            return trunk

        if banks is None:
            yield Sample(make_trunk(all_pinned, None), make_trunk(some_pinned, None), None, None, None)
            return
        regions = [arena.carve(slot_bytes) for _ in range(slots)]
        keys = [
            (bank.layer, number) for bank in container.manifest.banks for number in range(bank.num_experts)
        ]
        _fill(banks.records, reader, regions, keys)
        experts = _Experts(banks.records, reader, regions, keys)
        stack.callback(experts.close)
        present = _evenly(keys, max(2 * lookahead, round(_PRESENT * len(keys))))
        missing = _Experts(banks.records, reader, regions, present)
        stack.callback(missing.close)
        trunks = (make_trunk(all_pinned, experts), make_trunk(some_pinned, experts))
        yield Sample(*trunks, experts, make_trunk(all_pinned, missing), missing)


def arena_bytes(container: Container, sample_bytes: int) -> int:
    """Bytes of the arena that `sampled` makes."""
    segments = container.segments
    ring_slot = max(segments[number].nbytes for number in _streaming(segments, sample_bytes))
    slot_bytes = max((bank.record_bytes for bank in container.manifest.banks), default=0)
    experts = _slots(container, slot_bytes, sample_bytes) * slot_bytes
    return _nbytes(segments, _homes(segments, sample_bytes), ring_slot, experts)


def _slots(container: Container, slot_bytes: int, sample_bytes: int) -> int:
    total = sum(bank.num_experts for bank in container.manifest.banks)
    return max(1, min(total, sample_bytes // slot_bytes)) if total else 0


def _nbytes(segments: Sequence[Segment], homes: Mapping[int, int], ring_slot: int, expert_bytes: int) -> int:
    trunk = sum(segments[number].nbytes for number in set(homes.values()))
    return trunk + row_sizes(segments).staging_bytes + expert_bytes + 2 * ring_slot


def _streaming(segments: Sequence[Segment], most: int) -> frozenset[int]:
    """Segments to read anew in each pass: at most half of them, evenly, of together about `most` bytes."""
    streamed = [number for number, segment in enumerate(segments) if segment.streamed]
    mean = max(1, sum(segments[number].nbytes for number in streamed) // len(streamed))
    count = max(1, min(len(streamed) // 2, most // mean))
    return frozenset(_evenly(streamed, count))


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
    return tuple((part.offset, part.nbytes, part.format.name, part.rows, part.cols) for part in segment.parts)


def _evenly(items: Sequence[_T], count: int) -> list[_T]:
    """`count` of `items` (all, if there are no more), at equal distances: of all layers alike."""
    count = min(count, len(items))
    return [items[place * len(items) // count] for place in range(count)]


def _fill(
    records: ExpertRecords, reader: Reader, regions: Sequence[Bytes], keys: Sequence[ExpertKey]
) -> None:
    """Reads as many of `keys` as there are `regions` into these."""
    chosen = _evenly(keys, len(regions))
    requests = [
        records.request(key, region, Priority.TRUNK) for key, region in zip(chosen, regions, strict=True)
    ]
    reader.wait(reader.submit(requests))


class _Experts(ExpertCache):
    """A cache that starts with `present`, each in a slot that shares one of `regions` with others, and
    guesses about every turn while its `lookahead` is not 0. What it does not have, it reads; two such reads
    may write to one region, and the bytes are no expert's."""

    def __init__(
        self,
        records: ExpertRecords,
        reader: Reader,
        regions: Sequence[Bytes],
        present: Sequence[ExpertKey],
    ) -> None:
        slots = [regions[number % len(regions)] for number in range(len(present))]
        policy = make_policy(DEFAULT_POLICY, records.layers, records.num_experts)
        super().__init__(records, reader, slots, policy)
        self.preload(present)

    def wants_guess(self, layer: int) -> bool:
        return self.lookahead > 0

    def _read(self, entries: Sequence[Resident], priority: Priority) -> None:
        """Reads what turns and guesses ask for. What is loaded at the start need not be: bytes are there."""
        if priority != Priority.TRUNK:
            super()._read(entries, priority)
