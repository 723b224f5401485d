"""What a budget would give, before anything is loaded: the plan, what the machine grants, tokens per
second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from uringinfer.engine.loading import LoadOptions, OpenModel
from uringinfer.engine.memory import release_unused
from uringinfer.errors import BudgetError
from uringinfer.planning.machine import Machine
from uringinfer.planning.memory import MemoryPlan, predict_tokens_per_second

_PLENTY = 1 << 62
"""A budget beyond every machine: the plan then takes what it can use."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second of the drive and of the kernels; None where nothing is known."""

    drive: float | None = None
    compute: float | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """A plan on this machine. `default_budget` is what a run without a budget takes; None if it cannot
    run."""

    plan: MemoryPlan
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
        if self.rates.drive is None:
            return None
        return predict_tokens_per_second(self.plan, self.rates.drive, self.rates.compute)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "default_budget": self.default_budget,
            "exceeds_memory": self.exceeds_memory,
            "drive_bytes_per_second": self.rates.drive,
            "compute_bytes_per_second": self.rates.compute,
            "predicted_tokens_per_second": self.tokens_per_second,
            "machine": self.machine.to_json(),
        }


def outlook_of(
    opened: OpenModel, options: LoadOptions, rates: Rates, machine: Machine | None = None
) -> Outlook:
    """The outlook of loading `opened` with `options`.

    With a trunk budget and no other, the plan takes what that needs, whatever this machine has.

    Raises what `OpenModel.plan` raises.
    """
    release_unused()
    machine = machine or Machine.read()
    if options.budget is None and options.trunk_budget is not None:
        plan = opened.plan(replace(options, budget=_PLENTY))
        plan = replace(plan, budget=plan.used_bytes)
    else:
        plan = opened.plan(options)
    try:
        default = opened.plan(replace(options, budget=None, trunk_budget=None)).budget
    except BudgetError:
        default = None
    return Outlook(plan, machine, rates, default)


def sweep(
    opened: OpenModel, options: LoadOptions, rates: Rates, budgets: Sequence[int]
) -> list[Outlook | BudgetError]:
    """The outlook at each of `budgets`; the error where a budget is below the floor."""
    machine = Machine.read()
    outlooks: list[Outlook | BudgetError] = []
    for budget in budgets:
        try:
            outlooks.append(outlook_of(opened, replace(options, budget=budget), rates, machine))
        except BudgetError as error:
            outlooks.append(error)
    return outlooks
