"""When the drive and the processor work on which unit: the time of one pass over a plan.

One drive reads the streamed units in order, one processor computes all units in order, and a slot of the
ring is free again when its unit is computed. That is all that placement can change, so it is enough to
compare placements and to predict tokens per second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

_SETTLING_PASSES = 3
"""The ring starts empty; after this many passes reads run ahead as far as they ever will."""
_MEASURED_PASSES = 3


def pass_seconds(
    unit_bytes: Sequence[int],
    pinned: Collection[int],
    ring_slots: int,
    drive_bytes_per_s: float,
    compute_bytes_per_s: float | None = None,
) -> float:
    """Seconds of one pass of many, with reads crossing from the end of one pass into the next.

    `unit_bytes` are in the order of execution, `pinned` their indices in memory. Without a compute rate, what
    the reads alone take. A ring of one slot reads only when its unit is due.
    """
    in_memory = set(pinned)
    if compute_bytes_per_s is None:
        streamed = sum(nbytes for index, nbytes in enumerate(unit_bytes) if index not in in_memory)
        return streamed / drive_bytes_per_s
    drive_free = processor_free = settled = 0.0
    slots_free = deque([0.0] * ring_slots)
    for number in range(_SETTLING_PASSES + _MEASURED_PASSES):
        if number == _SETTLING_PASSES:
            settled = processor_free
        for index, nbytes in enumerate(unit_bytes):
            computing = nbytes / compute_bytes_per_s
            if index in in_memory:
                processor_free += computing
                continue
            begin = max(drive_free, slots_free.popleft())
            if ring_slots == 1:
                begin = max(begin, processor_free)
            drive_free = begin + nbytes / drive_bytes_per_s
            processor_free = max(processor_free, drive_free) + computing
            slots_free.append(processor_free)
    return (processor_free - settled) / _MEASURED_PASSES
