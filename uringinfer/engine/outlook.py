"""What a budget would give, before anything is loaded: the plan, what the machine grants, tokens per
second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from uringinfer.container.manifest import Segment
from uringinfer.engine.load_options import LoadOptions
from uringinfer.engine.loading import OpenModel
from uringinfer.errors import BudgetError
from uringinfer.planning.machine import Machine
from uringinfer.planning.memory import MemoryPlan
from uringinfer.planning.planner import Placement, TrunkPlan
from uringinfer.planning.prediction import Assumption, assumptions_of, predict_tokens_per_second
from uringinfer.planning.rates import Rates

_PLENTY = 1 << 62
"""A budget beyond every machine: the plan then takes what it can use."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the same memory gives with one cut of the trunk and one placement. `pinned_layers` are pinned
    whole; `plan` is None where this cut needs more memory."""

    cut: str
    placement: Placement
    plan: MemoryPlan | None
    pinned_layers: int

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        shown: dict[str, Any] = {"segment": self.cut, "placement": self.placement, "fits": plan is not None}
        if plan is None:
            return shown
        return shown | {
            "pinned_layers": self.pinned_layers,
            "hit_rate": plan.trunk.hit_rate,
            "ring_slots": plan.trunk.ring_slots,
            "slot_bytes": plan.trunk.slot_bytes,
            "bytes_per_token": plan.bytes_per_token,
        }


@dataclass(frozen=True, slots=True)
class Outlook:
    """A plan on this machine. `default_budget` is what a run without a budget takes; None if it cannot
    run. Of the model's `layers`, `pinned_layers` are pinned whole."""

    plan: MemoryPlan
    layers: int
    pinned_layers: int
    machine: Machine
    rates: Rates
    default_budget: int | None

    @property
    def exceeds_memory(self) -> bool:
        """Whether the plan takes more than this machine lets a process use: pinned weights would be paged."""
        return self.plan.used_bytes > self.machine.usable_bytes

    @property
    def tokens_per_second(self) -> float | None:
        """Predicted for decoding; None without a drive rate."""
        return predict_tokens_per_second(self.plan, self.rates)

    @property
    def assumptions(self) -> list[Assumption]:
        """What `tokens_per_second` rests on, and how each figure is known."""
        return assumptions_of(self.plan, self.rates)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "layers": self.layers,
            "pinned_layers": self.pinned_layers,
            "default_budget": self.default_budget,
            "exceeds_memory": self.exceeds_memory,
            "rates": self.rates.to_json(),
            "assumptions": [assumption.to_json() for assumption in self.assumptions],
            "predicted_tokens_per_second": self.tokens_per_second,
            "machine": self.machine.to_json(),
        }


def outlook_of(
    opened: OpenModel, options: LoadOptions, rates: Rates, machine: Machine | None = None
) -> Outlook:
    """The outlook of loading `opened` with `options`.

    With budgets of trunk and cache and no other, the plan takes what they need, whatever this machine has.

    Raises what `OpenModel.plan` raises.
    """
    opened.interpreter_bytes()  # first: it gives memory back, which the machine then has
    machine = machine or Machine.read()
    return _outlook(opened, options, rates, machine, _default_budget(opened, options))


def choices_of(opened: OpenModel, options: LoadOptions) -> list[Choice]:
    """What else the memory of `options` could give: every cut that `opened` knows, in both placements."""
    choices = []
    for cut, segments in opened.cuts.items():
        streamed = [segment for segment in segments if segment.streamed]
        for placement in get_args(Placement):
            try:
                plan = _plan(opened, replace(options, placement=placement), segments)
            except BudgetError:
                choices.append(Choice(cut, placement, None, 0))
            else:
                choices.append(Choice(cut, placement, plan, _pinned_layers(streamed, plan.trunk)))
    return choices


def _outlook(
    opened: OpenModel, options: LoadOptions, rates: Rates, machine: Machine, default: int | None
) -> Outlook:
    plan = _plan(opened, options)
    whole = _pinned_layers(opened.container.streamed_segments, plan.trunk)
    return Outlook(plan, opened.model.num_layers, whole, machine, rates, default)


def _default_budget(opened: OpenModel, options: LoadOptions) -> int | None:
    """What a run without a budget takes; None if it cannot run."""
    unbound = replace(options, budget=None, trunk_budget=None, cache_budget=None)
    try:
        return opened.plan(unbound, interpreter_bytes=opened.interpreter_bytes()).budget
    except BudgetError:
        return None


def _plan(opened: OpenModel, options: LoadOptions, segments: Sequence[Segment] | None = None) -> MemoryPlan:
    interpreter = opened.interpreter_bytes()
    if options.budget is not None or options.trunk_budget is None:
        return opened.plan(options, segments, interpreter_bytes=interpreter)
    plan = opened.plan(replace(options, budget=_PLENTY), segments, interpreter_bytes=interpreter)
    return replace(plan, budget=plan.used_bytes)


def _pinned_layers(segments: Sequence[Segment], trunk: TrunkPlan) -> int:
    """How many groups of segments called 'layers.N' are pinned whole."""
    pinned = set(trunk.pinned)
    whole = {segment.group for segment in segments if segment.group.startswith("layers.")}
    whole -= {segment.group for unit, segment in enumerate(segments) if unit not in pinned}
    return len(whole)


def sweep(
    opened: OpenModel, options: LoadOptions, rates: Rates, budgets: Sequence[int]
) -> list[Outlook | BudgetError]:
    """The outlook at each of `budgets`; the error where a budget is below the floor."""
    default = _default_budget(opened, options)
    machine = Machine.read()
    outlooks: list[Outlook | BudgetError] = []
    for budget in budgets:
        try:
            outlooks.append(_outlook(opened, replace(options, budget=budget), rates, machine, default))
        except BudgetError as error:
            outlooks.append(error)
    return outlooks
