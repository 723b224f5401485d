"""How a whole process divides its budget: interpreter, conversation, scratch, and the arena for the weights.

The arena takes what the rest leaves: pinned units, the ring, staging for embedding rows, and the embedding
table itself once everything else is pinned. Pure functions; what must be measured (the interpreter's share,
what the machine grants) comes in as a number. `engine.load` and `uringinfer plan` use the same
`plan_memory`, so what the one promises the other does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uringinfer.container.manifest import Segment
from uringinfer.errors import BudgetError
from uringinfer.planning.cache import CachePlan, Curve, ExpertSizes, plan_cache, split_slots
from uringinfer.planning.planner import Placement, TrunkPlan, plan_trunk, trunk_floor
from uringinfer.units import format_size

HUGE_PAGE = 2 << 20
"""The arena is a whole number of these."""
RESERVE_BYTES = 16 << 20
"""For what grows after the interpreter is measured: allocator, thread stacks, the reader's own buffers."""
INTERPRETER_MARGIN = 4 << 20
"""How far the interpreter's share differs from one process to the next, by the pages of libraries that are
in the page cache. A floor that is printed counts it, a plan does not: what one process prints, another
accepts."""
_PAGE_TABLE_SHARE = 512
"""One 8-byte entry for each 4 KiB page: what the arena costs if the kernel gives no huge pages."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """What a model and a conversation need, in bytes.

    `unit_bytes` are the streamed segments in the order of execution. `embedding_bytes` are the tables that no
    pass streams; `row_bytes` is what reading one row of a table takes, `staging_bytes` the buffer for those
    that are read at once. `state_bytes` is the key/value cache and the recurrent state at the chosen context,
    `scratch_bytes` the temporary arrays of a pass. `experts` are the routed ones, None in a dense model.
    """

    unit_bytes: tuple[int, ...]
    state_bytes: int
    scratch_bytes: int
    embedding_bytes: int = 0
    staging_bytes: int = 0
    row_bytes: int = 0
    experts: ExpertSizes | None = None

    @classmethod
    def of_segments(
        cls,
        segments: Sequence[Segment],
        *,
        state_bytes: int,
        scratch_bytes: int,
        staging_bytes: int,
        row_bytes: int,
        experts: ExpertSizes | None = None,
    ) -> ModelSizes:
        """The sizes of a container's `segments`, with a conversation's."""
        return cls(
            unit_bytes=tuple(segment.nbytes for segment in segments if segment.streamed),
            state_bytes=state_bytes,
            scratch_bytes=scratch_bytes,
            embedding_bytes=sum(segment.nbytes for segment in segments if not segment.streamed),
            staging_bytes=staging_bytes,
            row_bytes=row_bytes,
            experts=experts,
        )

    @property
    def least_cache_bytes(self) -> int:
        """What the expert cache needs at least; 0 for a dense model."""
        return self.experts.least_slots * self.experts.record_bytes if self.experts else 0

    @property
    def weight_bytes(self) -> int:
        """Everything that could be held in memory."""
        experts = self.experts.total * self.experts.record_bytes if self.experts else 0
        return sum(self.unit_bytes) + self.embedding_bytes + experts


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One line of the table: what, how many bytes, and a remark."""

    name: str
    nbytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where every byte of `budget` goes. `trunk` says which units are pinned; all sizes are bytes.

    `floor` is the least budget that runs at all, `overlap_floor` the least with which reads overlap compute
    (as many slots as were asked for), `everything` the budget beyond which more memory changes nothing.
    There is room for `parallel` conversations. The scratch has room for passes of `pass_tokens` tokens, with
    `guesses` of each conversation among them.
    """

    budget: int
    interpreter_bytes: int
    reserve_bytes: int
    state_bytes: int
    scratch_bytes: int
    staging_bytes: int
    embedding_bytes: int
    row_bytes: int
    embedding_pinned: bool
    trunk: TrunkPlan
    floor: int
    overlap_floor: int
    everything: int
    cache: CachePlan | None = None
    parallel: int = 1
    pass_tokens: int = 1
    guesses: int = 0

    @property
    def used_arena_bytes(self) -> int:
        """Bytes of the arena that have a purpose."""
        table = self.embedding_bytes if self.embedding_pinned else 0
        return self.trunk.arena_bytes + self.staging_bytes + table + (self.cache.nbytes if self.cache else 0)

    @property
    def arena_bytes(self) -> int:
        """The arena as it is allocated: whole huge pages."""
        return _round_up(self.used_arena_bytes, HUGE_PAGE)

    @property
    def page_table_bytes(self) -> int:
        """What the kernel needs to map the arena, if it gives no huge pages; a memory cgroup counts it."""
        return _page_tables(self.arena_bytes)

    @property
    def used_bytes(self) -> int:
        """Everything besides `unused_bytes`."""
        fixed = self.interpreter_bytes + self.reserve_bytes + self.state_bytes + self.scratch_bytes
        return fixed + self.arena_bytes + self.page_table_bytes

    @property
    def unused_bytes(self) -> int:
        return self.budget - self.used_bytes

    @property
    def reads_weights(self) -> bool:
        """Whether passes read from the drive: not everything is in memory."""
        experts = self.cache is not None and self.cache.slots < self.cache.total_experts
        return bool(self.trunk.streamed_bytes) or experts

    @property
    def bytes_per_token(self) -> int:
        """Bytes read from the drive to decode one token: what streams, its embedding row, and the experts
        that the cache is expected to miss."""
        experts = self.cache.bytes_per_token if self.cache else 0
        return self.trunk.streamed_bytes + self.row_bytes_per_token + experts

    @property
    def row_bytes_per_token(self) -> int:
        """Bytes read to look up one token's embedding."""
        return 0 if self.embedding_pinned else self.row_bytes

    def rows(self) -> list[PlanRow]:
        """The table: the sizes add up to the budget."""
        trunk = self.trunk
        each = (
            ""
            if self.parallel == 1
            else f"{self.parallel} x {format_size(self.state_bytes // self.parallel)}: "
        )
        slots = (
            f"{trunk.ring_slots} x {format_size(trunk.slot_bytes)}" if trunk.ring_slots else "nothing streams"
        )
        rows = [
            PlanRow(
                "pinned weights", trunk.pinned_bytes, f"{trunk.pinned_count} of {trunk.unit_count} units"
            ),
            PlanRow("ring", trunk.ring_bytes, slots if trunk.overlaps else f"{slots}, reads do not overlap"),
        ]
        if self.embedding_bytes:
            rows += [
                PlanRow("embedding table", self.embedding_bytes, "pinned")
                if self.embedding_pinned
                else PlanRow("embedding table", 0, "rows read on demand"),
                PlanRow("row staging", self.staging_bytes, "embedding rows read at once"),
            ]
        if self.cache is not None:
            cache = self.cache
            note = (
                f"{cache.slots} of {cache.total_experts} experts, {cache.hit_rate:.1%} hits expected by"
                f" {cache.basis}; the trunk comes first, as each of its bytes saves one per token"
            )
            rows.append(PlanRow("expert cache", cache.nbytes, note))
        rows += [
            PlanRow("rounding", self.arena_bytes - self.used_arena_bytes, "the arena in whole 2 MiB pages"),
            PlanRow("page tables", self.page_table_bytes, "if the kernel gives no huge pages"),
            PlanRow(
                "conversation" if self.parallel == 1 else "conversations",
                self.state_bytes,
                f"{each}key/value cache and recurrent state",
            ),
            PlanRow("scratch", self.scratch_bytes, "temporary arrays of a pass"),
            PlanRow("interpreter", self.interpreter_bytes, "measured before the arena is made"),
            PlanRow("reserve", self.reserve_bytes, "allocator, threads, reader"),
            PlanRow("unused", self.unused_bytes),
        ]
        return rows

    def to_json(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "interpreter_bytes": self.interpreter_bytes,
            "reserve_bytes": self.reserve_bytes,
            "state_bytes": self.state_bytes,
            "scratch_bytes": self.scratch_bytes,
            "staging_bytes": self.staging_bytes,
            "embedding_bytes": self.embedding_bytes,
            "embedding_pinned": self.embedding_pinned,
            "arena_bytes": self.arena_bytes,
            "page_table_bytes": self.page_table_bytes,
            "unused_bytes": self.unused_bytes,
            "bytes_per_token": self.bytes_per_token,
            "floor": self.floor,
            "overlap_floor": self.overlap_floor,
            "everything": self.everything,
            "parallel": self.parallel,
            "pass_tokens": self.pass_tokens,
            "guesses": self.guesses,
            "trunk": self.trunk.to_json(),
            "cache": None if self.cache is None else self.cache.to_json(),
        }


def plan_memory(
    sizes: ModelSizes,
    budget: int,
    *,
    interpreter_bytes: int,
    ring_slots: int = 2,
    placement: Placement = "spread",
    trunk_budget: int | None = None,
    cache_budget: int | None = None,
    usage: Curve | None = None,
    recall: float | None = None,
    named: int = 0,
    reserve_bytes: int = RESERVE_BYTES,
    opening_peak: int = 0,
    margin: int = 0,
) -> MemoryPlan:
    """Divides `budget` bytes, for the whole process, among everything that `sizes` needs.

    `interpreter_bytes` is the process' resident memory before the arena is made (`machine.resident_bytes`).
    `trunk_budget` bounds what pinned units and ring may take, `cache_budget` the expert cache; without them
    the two divide what is left by what saves more reading (see `planning.cache`). `usage` is how the hit rate
    of the cache grows, and `recall` how much of what is used the `named` guesses name, if
    that was learned. `opening_peak` is what the process held at most before, and gave back. The floor is
    `margin` more than the least that is accepted.

    Raises BudgetError with the floor and the budget if the least plan does not fit.
    """
    fixed = interpreter_bytes + reserve_bytes + sizes.state_bytes + sizes.scratch_bytes
    least_trunk = trunk_floor(sizes.unit_bytes, 1, placement)
    least = max(fixed + _arena_cost(sizes, least_trunk + sizes.least_cache_bytes), opening_peak)
    floor = least + margin
    if budget < least:
        raise BudgetError(
            f"a budget of {format_size(budget)} ({budget} bytes) is below this model's floor of"
            f" {format_size(floor)} ({floor} bytes)",
            floor=floor,
            budget=budget,
            hint="raise --budget, or use a shorter context, a smaller chunk or smaller segments"
            if least > opening_peak
            else "raise --budget: opening the model takes so much; if it was packed just now, run again",
        )
    room = _largest_arena(budget - fixed) - sizes.staging_bytes
    overlapping_trunk = trunk_floor(sizes.unit_bytes, ring_slots, placement)
    cache_bytes = _cache_bytes(sizes, room, least_trunk, overlapping_trunk, trunk_budget, cache_budget)
    for_trunk = room - cache_bytes
    trunk = plan_trunk(
        sizes.unit_bytes,
        for_trunk if trunk_budget is None else max(least_trunk, min(for_trunk, trunk_budget)),
        ring_slots=ring_slots,
        placement=placement,
    )
    left = room - cache_bytes - trunk.arena_bytes
    embedding_pinned = not trunk.streamed_bytes and sizes.embedding_bytes <= left
    cache = None
    if sizes.experts is not None:
        if cache_budget is None:
            cache_bytes += max(0, left - (sizes.embedding_bytes if embedding_pinned else 0))
        slots = min(cache_bytes // sizes.experts.record_bytes, sizes.experts.total)
        cache = plan_cache(slots, sizes.experts, usage, recall, named)
    return MemoryPlan(
        budget=budget,
        interpreter_bytes=interpreter_bytes,
        reserve_bytes=reserve_bytes,
        state_bytes=sizes.state_bytes,
        scratch_bytes=sizes.scratch_bytes,
        staging_bytes=sizes.staging_bytes,
        embedding_bytes=sizes.embedding_bytes,
        row_bytes=sizes.row_bytes,
        # a pinned table saves one row a token, a pinned unit all of itself: the table comes last
        embedding_pinned=embedding_pinned,
        trunk=trunk,
        floor=floor,
        overlap_floor=fixed + _arena_cost(sizes, overlapping_trunk + sizes.least_cache_bytes),
        everything=fixed + _arena_cost(sizes, sizes.weight_bytes),
        cache=cache,
    )


def _cache_bytes(
    sizes: ModelSizes,
    room: int,
    least_trunk: int,
    overlapping_trunk: int,
    trunk_budget: int | None,
    cache_budget: int | None,
) -> int:
    """What the expert cache takes of `room` before the trunk is planned: whole slots."""
    if sizes.experts is None:
        return 0
    experts, total = sizes.experts, sum(sizes.unit_bytes)
    most = (room - least_trunk) // experts.record_bytes
    if cache_budget is not None:
        slots = max(experts.least_slots, cache_budget // experts.record_bytes)
    elif trunk_budget is not None:
        slots = (room - min(max(trunk_budget, least_trunk), total)) // experts.record_bytes
    else:
        trunk = overlapping_trunk if room - overlapping_trunk >= sizes.least_cache_bytes else least_trunk
        slots = split_slots(room, total, trunk, experts)
    return max(experts.least_slots, min(slots, most, experts.total)) * experts.record_bytes


def shares_note(plan: MemoryPlan, trunk_budget: int | None, cache_budget: int | None) -> str | None:
    """What to say where trunk and expert cache were promised more than the budget has for them; else None."""
    asked = []
    if trunk_budget is not None:
        asked.append(("trunk", min(trunk_budget, plan.trunk.total_bytes)))
    if cache_budget is not None and plan.cache is not None:
        asked.append(("expert cache", min(cache_budget, plan.cache.total_experts * plan.cache.record_bytes)))
    room = plan.arena_bytes + plan.unused_bytes - plan.staging_bytes
    if sum(nbytes for _, nbytes in asked) <= room:
        return None
    named = " and ".join(f"{format_size(nbytes)} of {what}" for what, nbytes in asked)
    return (
        f"{named} were asked for, and a budget of {format_size(plan.budget)} has {format_size(room)} for"
        " weights: it runs with what fits"
    )


def default_budget(
    sizes: ModelSizes,
    usable_bytes: int,
    *,
    interpreter_bytes: int,
    reserve_bytes: int = RESERVE_BYTES,
    margin: int = 0,
) -> int:
    """The budget when none is given: what the model can use, within three quarters of `usable_bytes`.

    Beyond what the machine holds, a larger budget turns hits into page faults. A model whose floor lies above
    three quarters, but within `usable_bytes`, gets its floor. `margin` is as in `plan_memory`.

    Raises BudgetError if the floor is above `usable_bytes`.
    """
    fixed = interpreter_bytes + reserve_bytes + sizes.state_bytes + sizes.scratch_bytes
    floor = fixed + _arena_cost(sizes, trunk_floor(sizes.unit_bytes, 1) + sizes.least_cache_bytes)
    if floor > usable_bytes:
        raise BudgetError(
            f"this model needs at least {format_size(floor + margin)} ({floor + margin} bytes), and this"
            f" process may use {format_size(usable_bytes)} ({usable_bytes} bytes)",
            floor=floor + margin,
            budget=usable_bytes,
            hint="raise the limit, or use a shorter context, a smaller chunk or smaller segments",
        )
    everything = fixed + _arena_cost(sizes, sizes.weight_bytes)
    return max(floor, min(everything, usable_bytes * 3 // 4))


def _round_up(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


def _page_tables(arena_bytes: int) -> int:
    return arena_bytes // _PAGE_TABLE_SHARE


def _arena_cost(sizes: ModelSizes, weight_bytes: int) -> int:
    """The arena that holds `weight_bytes` and the staging, with its page tables."""
    arena = _round_up(weight_bytes + sizes.staging_bytes, HUGE_PAGE)
    return arena + _page_tables(arena)


def _largest_arena(nbytes: int) -> int:
    """The largest whole number of huge pages that fits into `nbytes` together with its page tables."""
    return nbytes // (HUGE_PAGE + _page_tables(HUGE_PAGE)) * HUGE_PAGE
