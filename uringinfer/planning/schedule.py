"""When the drive and the processor work on which unit: the time of one pass over a plan.

One drive reads the streamed units in order, one processor computes all units in order, and a slot of the
ring is free again when its unit is computed. Between units come the turns of layers with routed experts: they
hold the processor, and what they miss goes before everything else on the drive. That is all that placement
can change, so it is enough to compare placements and to predict tokens per second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import comb

_SETTLING_PASSES = 3
"""The ring starts empty; after this many passes reads run ahead as far as they ever will."""
_MEASURED_PASSES = 3


@dataclass(frozen=True, slots=True)
class ExpertTurns:
    """Every pass has `count` turns of experts, evenly over its units. Each holds the processor for `seconds`,
    of which the drive reads what was missed for the first `reading`."""

    count: int
    seconds: float
    reading: float


def turn_seconds(used: int, miss_rate: float, compute_seconds: float, read_seconds: float) -> float:
    """Expected seconds of a turn that uses `used` experts, each of which is missed at `miss_rate`, 0 to 1.

    All that is missed is asked for at once. What is there is computed meanwhile, `compute_seconds` for each,
    and so is each of the others when its `read_seconds` are over; behind the last one nothing is left to
    hide its compute.
    """
    expected = 0.0
    for missed in range(used + 1):
        chance = comb(used, missed) * miss_rate**missed * (1 - miss_rate) ** (used - missed)
        arrival = missed * read_seconds + compute_seconds if missed else 0.0
        expected += chance * max(used * compute_seconds, arrival)
    return expected


def pass_seconds(
    unit_bytes: Sequence[int],
    pinned: Collection[int],
    ring_slots: int,
    drive_bytes_per_s: float,
    compute_bytes_per_s: float | None = None,
    turns: ExpertTurns | None = None,
) -> float:
    """Seconds of one pass of many, with reads crossing from the end of one pass into the next.

    `unit_bytes` are in the order of execution, `pinned` their indices in memory. Without a compute rate, what
    the reads alone take. A ring of one slot reads only when its unit is due.
    """
    in_memory = set(pinned)
    if compute_bytes_per_s is None:
        streamed = sum(nbytes for index, nbytes in enumerate(unit_bytes) if index not in in_memory)
        return streamed / drive_bytes_per_s + (turns.count * turns.reading if turns else 0.0)
    drive_free = processor_free = settled = 0.0
    slots_free = deque([0.0] * ring_slots)
    held: deque[tuple[float, float]] = deque()
    turn_at = _positions(turns, len(unit_bytes))
    for number in range(_SETTLING_PASSES + _MEASURED_PASSES):
        if number == _SETTLING_PASSES:
            settled = processor_free
        for index, nbytes in enumerate(unit_bytes):
            computing = nbytes / compute_bytes_per_s
            if index in in_memory:
                processor_free += computing
            else:
                begin = max(drive_free, slots_free.popleft())
                if ring_slots == 1:
                    begin = max(begin, processor_free)
                drive_free = _finish(begin, nbytes / drive_bytes_per_s, held)
                processor_free = max(processor_free, drive_free) + computing
                slots_free.append(processor_free)
            for _ in range(turn_at[index]):
                if turns is not None:
                    held.append((processor_free, processor_free + turns.reading))
                    processor_free += turns.seconds
    return (processor_free - settled) / _MEASURED_PASSES


def _positions(turns: ExpertTurns | None, units: int) -> list[int]:
    """How many turns come behind each unit."""
    count = turns.count if turns is not None else 0
    reached = [count * (index + 1) // units for index in range(units)]
    return [now - before for before, now in zip([0, *reached], reached, strict=False)]


def _finish(begin: float, seconds: float, held: deque[tuple[float, float]]) -> float:
    """When a read of `seconds` that may start at `begin` is over, if it yields to what `held` the drive."""
    while held and held[0][1] <= begin:
        held.popleft()
    for start, end in held:
        before = max(0.0, start - begin)
        if seconds <= before:
            break
        seconds -= before
        begin = max(begin, end)
    return begin + seconds
