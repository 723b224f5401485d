"""What a budget becomes on this machine: never more than this process may use.

A budget beyond that would be killed by a cgroup without a word, or paged. Pure functions.
"""

from __future__ import annotations

from uringinfer.errors import BudgetError
from uringinfer.planning.machine import Machine
from uringinfer.planning.memory import RESERVE_BYTES
from uringinfer.units import format_size

_ROUNDING = 1 << 16
"""Limits are whole pages, of which the largest have so many bytes: this little less is worth no word."""


def granted(budget: int | None, machine: Machine) -> tuple[int | None, list[str]]:
    """The budget to run with, and what is to be said of it: `budget` itself (None stays None), or what this
    process may use if that is less; and the engines that run beside it."""
    notes = machine.neighbour_notes
    usable = machine.usable_bytes
    if budget is None or budget <= usable:
        return budget, notes
    if budget - usable <= _ROUNDING:
        return usable, notes
    said = (
        f"a budget of {format_size(budget)} ({budget} bytes) was asked for and this process may use"
        f" {format_size(usable)} ({usable} bytes; {machine.bounded_by}): it runs with that"
    )
    return usable, [said, *notes]


def room(machine: Machine, budget: int | None = None) -> int:
    """Bytes that this process may still take, within `budget` if there is one, beside a reserve for what
    grows by itself."""
    usable = machine.usable_bytes if budget is None else min(budget, machine.usable_bytes)
    return max(0, usable - machine.resident - RESERVE_BYTES)


def lacking(what: str, needed: int, machine: Machine, budget: int | None = None) -> BudgetError:
    """The error of `what`, which needs `needed` bytes where `room` has not so many."""
    usable = machine.usable_bytes if budget is None else min(budget, machine.usable_bytes)
    floor = machine.resident + RESERVE_BYTES + needed
    bound = machine.bounded_by if usable == machine.usable_bytes else "the budget"
    return BudgetError(
        f"{what} needs at least {format_size(floor)} ({floor} bytes), and this process may use"
        f" {format_size(usable)} ({usable} bytes; {bound})",
        floor=floor,
        budget=usable,
        hint="raise the limit or the budget",
    )
