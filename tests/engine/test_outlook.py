import itertools
from dataclasses import replace

import pytest

from uringinfer.engine import loading
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.engine.outlook import Rates, choices_of, outlook_of, sweep
from uringinfer.errors import BudgetError
from uringinfer.planning.machine import Bound, Machine
from uringinfer.planning.memory import INTERPRETER_MARGIN

MIB = 1 << 20
OPTIONS = LoadOptions(context=64, chunk=8)


def machine(usable):
    return Machine(
        memory_total=usable,
        memory_available=usable,
        resident=0,
        swap_total=0,
        swap_free=0,
        memlock_soft=None,
        memlock_hard=None,
        bounds=(Bound("a limit", usable, usable),),
    )


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    """The interpreter's share differs by some pages from one call to the next; here it does not."""
    monkeypatch.setattr(loading, "resident_bytes", lambda: 200 * MIB)


def floor_of(opened):
    return outlook_of(opened, replace(OPTIONS, budget=4 << 30), Rates()).plan.floor


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_a_run_loads_exactly_what_was_planned(medium, share):
    most = outlook_of(medium, replace(OPTIONS, budget=4 << 30), Rates()).plan
    options = replace(OPTIONS, budget=most.floor + round(share * (most.everything - most.floor)))

    planned = outlook_of(medium, options, Rates()).plan

    with medium.load(options) as engine:
        assert engine.plan == planned


def test_the_default_is_what_a_run_without_a_budget_takes(medium):
    outlook = outlook_of(medium, replace(OPTIONS, budget=4 << 30), Rates())

    assert outlook.default_budget == medium.plan(OPTIONS).budget


def test_a_trunk_budget_alone_is_planned_even_beyond_this_machine(medium):
    outlook = outlook_of(medium, replace(OPTIONS, trunk_budget=4 * MIB), Rates(), machine(100 * MIB))

    assert 2 * MIB < outlook.plan.trunk.arena_bytes <= 4 * MIB
    assert outlook.plan.unused_bytes == 0
    assert outlook.exceeds_memory


def test_a_plan_within_the_machine_does_not_exceed_it(medium):
    assert not outlook_of(medium, replace(OPTIONS, budget=1 << 30), Rates(), machine(2 << 30)).exceeds_memory


def test_a_model_that_does_not_fit_this_machine_has_no_default(medium, monkeypatch):
    monkeypatch.setattr(loading.Machine, "read", lambda: machine(100 * MIB))

    outlook = outlook_of(medium, replace(OPTIONS, budget=4 << 30), Rates(), machine(100 * MIB))

    assert outlook.default_budget is None


def test_without_a_drive_rate_nothing_is_predicted(medium):
    options = replace(OPTIONS, budget=floor_of(medium))

    assert outlook_of(medium, options, Rates(compute=1e9)).tokens_per_second is None
    slow, fast = (outlook_of(medium, options, Rates(drive)).tokens_per_second for drive in (1e6, 2e6))
    assert 0 < slow < fast


def test_a_sweep_has_an_outlook_for_each_budget_and_the_error_below_the_floor(medium):
    floor = floor_of(medium)

    least = floor - INTERPRETER_MARGIN

    below, at, above = sweep(medium, OPTIONS, Rates(), [least - 1, least, floor + 4 * MIB])

    assert isinstance(below, BudgetError)
    assert below.floor == floor
    assert at.plan.trunk.hit_rate < above.plan.trunk.hit_rate


def test_plans_of_one_model_agree_on_the_floor_however_the_process_grows(medium, monkeypatch):
    opened = open_model(medium.container.path)
    grown = itertools.count(200 * MIB, MIB)
    monkeypatch.setattr(loading, "resident_bytes", lambda: next(grown))

    floor = floor_of(opened)
    at, *rest = sweep(
        opened, OPTIONS, Rates(), [floor, floor - INTERPRETER_MARGIN - 1, floor + MIB, floor + 2 * MIB]
    )
    choices = choices_of(opened, replace(OPTIONS, budget=floor))

    assert at.plan.floor == rest[0].floor == floor
    assert {outlook.plan.floor for outlook in rest[1:]} == {floor}
    assert any(choice.plan == at.plan for choice in choices)
    assert opened.plan(replace(OPTIONS, budget=4 << 30)).floor > floor  # what loads is measured anew
