"""How a trunk divides a budget: which units are pinned, how large the ring is that streams the rest.

A unit is what is read at once: a segment, or a whole layer. Pinning more units can shrink the largest unit
that still streams, which shrinks the ring's slots, which frees memory for more pinned units. So both are
solved together: a plan is a fixed point, pinned bytes + slots * (largest streamed unit) <= budget, and the
result is the largest one. A greedy iteration from below can stop too early, because adding one unit may not
fit where adding two does (the second shrinks the slots).

Pure functions of (unit sizes, budget, ring slots, placement). Knows nothing of files, machines or models.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from uringinfer.errors import BudgetError, UsageError
from uringinfer.planning.schedule import pass_seconds
from uringinfer.units import format_size

Placement = Literal["spread", "prefix"]

_MAX_CANDIDATES = 8
"""Slot sizes that spreading compares, of possibly thousands."""


@dataclass(frozen=True, slots=True)
class TrunkPlan:
    """Which of the units are pinned, and the ring that the others stream through. Sizes are bytes.

    `unit_bytes` are the units in the order of execution; `pinned` holds the indices of those that are
    pinned, ascending. `ring_slots` is 0 when nothing streams; `wanted_slots` is what was asked for.
    `slot_bytes` is the largest unit that streams.
    """

    unit_bytes: tuple[int, ...]
    pinned: tuple[int, ...]
    wanted_slots: int
    ring_slots: int
    slot_bytes: int
    pinned_bytes: int
    streamed_bytes: int
    placement: Placement

    @property
    def unit_count(self) -> int:
        return len(self.unit_bytes)

    @property
    def total_bytes(self) -> int:
        """All units: what one pass uses."""
        return self.pinned_bytes + self.streamed_bytes

    @property
    def ring_bytes(self) -> int:
        return self.ring_slots * self.slot_bytes

    @property
    def arena_bytes(self) -> int:
        """Pinned units and ring together: what the plan takes of the budget."""
        return self.pinned_bytes + self.ring_bytes

    @property
    def pinned_count(self) -> int:
        return len(self.pinned)

    @property
    def hit_rate(self) -> float:
        """Share of a pass' bytes that are in memory already, 0 to 1. Certain, not expected: every pass uses
        every unit once."""
        return self.pinned_bytes / self.total_bytes if self.total_bytes else 1.0

    @property
    def overlaps(self) -> bool:
        """Whether the next unit can be read while one is computed. A plan that reads nothing never waits."""
        return self.ring_slots != 1

    @property
    def reason(self) -> str:
        """The plan in words, for the line that a run starts with."""
        if not self.ring_slots:
            return f"all {self.unit_count} units pinned, nothing streams"
        share = f"{self.pinned_count} of {self.unit_count} units pinned, {self.hit_rate:.1%} of the bytes"
        if self.overlaps:
            return f"{share}; the rest streams through {self.ring_slots} slots while the model computes"
        if self.wanted_slots == 1:
            return f"{share}; one ring slot as asked, so reads do not overlap compute"
        return (
            f"{share}; a second ring slot of {format_size(self.slot_bytes)} does not fit,"
            " so reads do not overlap compute"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "placement": self.placement,
            "unit_count": self.unit_count,
            "pinned_count": self.pinned_count,
            "pinned": list(self.pinned),
            "pinned_bytes": self.pinned_bytes,
            "streamed_bytes": self.streamed_bytes,
            "ring_slots": self.ring_slots,
            "slot_bytes": self.slot_bytes,
            "ring_bytes": self.ring_bytes,
            "hit_rate": self.hit_rate,
            "overlaps": self.overlaps,
            "reason": self.reason,
        }


def trunk_floor(unit_bytes: Sequence[int], ring_slots: int, placement: Placement = "spread") -> int:
    """The least budget in bytes for which `plan_trunk` gives `ring_slots` slots, or pins everything.

    With one slot that is the largest unit. With more it can pay to pin the few largest units and to stream
    the rest through smaller slots.
    """
    if placement == "prefix":
        fixed_points = list(_prefix_points(unit_bytes))
    else:
        fixed_points = [(larger_bytes, slot) for slot, larger_bytes in _slot_sizes(unit_bytes)]
    needed = [pinned_bytes + ring_slots * slot for pinned_bytes, slot in fixed_points]
    return min([sum(unit_bytes), *needed])


def plan_trunk(
    unit_bytes: Sequence[int], budget: int, *, ring_slots: int = 2, placement: Placement = "spread"
) -> TrunkPlan:
    """The largest plan of `unit_bytes` (in the order of execution) that fits into `budget` bytes.

    'prefix' pins the first n units, n as large as possible. 'spread' distributes the pinned units evenly over
    the order of execution, in bytes, besides those that are pinned because they are larger than the slots; no
    larger set that contains it fits.

    `ring_slots` slots if they fit, fewer if not, at least one; with one slot, reads do not overlap compute.
    If everything fits, nothing streams and there is no ring.

    Raises BudgetError with both numbers if not even one slot fits, UsageError for sizes or slots below one.
    """
    if ring_slots < 1:
        raise UsageError(f"{ring_slots} ring slots cannot stream", hint="use 2, or 1 to read synchronously")
    if any(size < 1 for size in unit_bytes):
        raise UsageError(f"a unit of {min(unit_bytes)} bytes cannot be planned", hint="drop empty units")
    floor = max(unit_bytes, default=0)
    if budget < floor:
        raise BudgetError(
            f"a budget of {budget} bytes is below the trunk's floor of {floor} bytes, its largest unit",
            floor=floor,
            budget=budget,
            hint="raise the budget, or pack with smaller segments",
        )
    total = sum(unit_bytes)
    if total <= budget:
        return _plan(unit_bytes, range(len(unit_bytes)), 0, ring_slots, placement)
    choose = _prefix if placement == "prefix" else _spread
    for slots in range(ring_slots, 0, -1):
        pinned = choose(unit_bytes, budget, slots)
        if pinned is not None:
            break
    # one slot always fits here: the budget is at least the largest unit
    return _plan(unit_bytes, pinned or (), slots, ring_slots, placement)


def _plan(
    unit_bytes: Sequence[int], pinned: Collection[int], slots: int, wanted_slots: int, placement: Placement
) -> TrunkPlan:
    chosen = set(pinned)
    pinned_bytes = sum(unit_bytes[index] for index in chosen)
    return TrunkPlan(
        unit_bytes=tuple(unit_bytes),
        pinned=tuple(sorted(chosen)),
        wanted_slots=wanted_slots,
        ring_slots=slots,
        slot_bytes=max((size for index, size in enumerate(unit_bytes) if index not in chosen), default=0),
        pinned_bytes=pinned_bytes,
        streamed_bytes=sum(unit_bytes) - pinned_bytes,
        placement=placement,
    )


def _prefix(unit_bytes: Sequence[int], budget: int, slots: int) -> Collection[int] | None:
    """The longest prefix that fits beside the ring for the rest; None if no prefix does.

    Looks at every length, from the longest: whether a length fits is not monotone in it.
    """
    for unpinned, (pinned_bytes, slot) in enumerate(_prefix_points(unit_bytes), start=1):
        if pinned_bytes + slots * slot <= budget:
            return range(len(unit_bytes) - unpinned)
    return None


def _prefix_points(unit_bytes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(bytes of the prefix, largest unit of the rest) of every proper prefix, the longest first."""
    pinned_bytes, slot = sum(unit_bytes), 0
    for size in reversed(unit_bytes):
        pinned_bytes -= size
        slot = max(slot, size)
        yield pinned_bytes, slot


def _spread(unit_bytes: Sequence[int], budget: int, slots: int) -> Collection[int] | None:
    """The best of the evenly spread sets, one for each slot size; None if no slot size is possible.

    A smaller slot leaves more memory for pinned units, but every larger unit is then pinned by necessity,
    wherever it stands, so less can be spread. Which is better, the schedule of a pass tells. It is asked
    where placement matters most: drive and processor equally busy.
    """
    possible = [
        (slot, larger_bytes)
        for slot, larger_bytes in _slot_sizes(unit_bytes)
        if larger_bytes + slots * slot <= budget
    ]
    candidates = []
    for slot, larger_bytes in _sample(possible, _MAX_CANDIDATES):
        pinned = _diffuse(unit_bytes, slot, budget - slots * slot - larger_bytes)
        # once more with what was reached as the target: it closes the gap between the last and the first
        even = _diffuse(unit_bytes, slot, _sum(unit_bytes, pinned) - larger_bytes)
        if _sum(unit_bytes, even) == _sum(unit_bytes, pinned):
            pinned = even
        _complete(unit_bytes, pinned, budget, slots)
        candidates.append(pinned)
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    most_pinned = max(_sum(unit_bytes, pinned) for pinned in candidates)
    balanced = sum(unit_bytes) / (sum(unit_bytes) - most_pinned)
    return min(candidates, key=lambda pinned: pass_seconds(unit_bytes, pinned, slots, 1.0, balanced))


def _sample(items: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """`count` of `items` (all, if there are no more) at equal distances, the first and the last among
    them."""
    if len(items) <= count:
        return list(items)
    return [items[index * (len(items) - 1) // (count - 1)] for index in range(count)]


def _sum(unit_bytes: Sequence[int], indices: Collection[int]) -> int:
    return sum(unit_bytes[index] for index in indices)


def _slot_sizes(unit_bytes: Sequence[int]) -> list[tuple[int, int]]:
    """Every possible slot size, ascending, with the bytes of all units larger than it."""
    sizes = []
    larger_bytes = 0
    for size, count in sorted(Counter(unit_bytes).items(), reverse=True):
        sizes.append((size, larger_bytes))
        larger_bytes += size * count
    return sizes[::-1]


def _diffuse(unit_bytes: Sequence[int], slot: int, target: int) -> set[int]:
    """Pins every unit larger than `slot`, and of the others at most `target` bytes, evenly in bytes.

    Error diffusion, in integers: each unit passed earns its share of the target, and is pinned when the
    credit pays for it. Never spends more than was earned, so never more than `target`.
    """
    eligible_bytes = sum(size for size in unit_bytes if size <= slot)
    pinned = set()
    credit = 0
    for index, size in enumerate(unit_bytes):
        if size > slot:
            pinned.add(index)
            continue
        credit += size * target
        if credit >= size * eligible_bytes:
            credit -= size * eligible_bytes
            pinned.add(index)
    return pinned


def _complete(unit_bytes: Sequence[int], pinned: set[int], budget: int, slots: int) -> None:
    """Adds units to `pinned` (which fits) until no larger set that contains it fits.

    Spends what diffusion left over on the largest unit that fits, the last of its size, because the credit is
    left at the end; then looks for a smaller slot size that pays for pinning all units above it.
    """
    streaming = sorted((size, index) for index, size in enumerate(unit_bytes) if index not in pinned)
    left = budget - _sum(unit_bytes, pinned)
    while True:
        fits = bisect_right(streaming, (left - slots * streaming[-1][0], len(unit_bytes)))
        if fits:
            size, index = streaming.pop(fits - 1)
            pinned.add(index)
            left -= size
            continue
        larger_bytes = 0
        for position in range(len(streaming) - 1, 0, -1):
            larger_bytes += streaming[position][0]
            if larger_bytes + slots * streaming[position - 1][0] <= left:
                pinned.update(index for _, index in streaming[position:])
                left -= larger_bytes
                del streaming[position:]
                break
        else:
            return
