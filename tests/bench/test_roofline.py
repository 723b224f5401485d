"""Ceilings, from measurements that are written out by hand."""

from types import SimpleNamespace

import pytest

from uringinfer.bench.roofline import roofline


def measured(budget, read, used=1000.0):
    return SimpleNamespace(
        setup=SimpleNamespace(budget=budget), bytes_per_token=read, used_bytes_per_token=used
    )


def at(lines, which, budget):
    return getattr(lines, which)[lines.budgets.index(budget)]


def test_a_ceiling_is_a_rate_over_the_bytes_of_a_token():
    lines = roofline([measured(100, 900.0), measured(500, 500.0)], 9000.0, 4000.0)
    assert at(lines, "drive", 100) == 10.0
    assert at(lines, "drive", 500) == 18.0
    assert set(lines.memory) == {4.0}


def test_between_two_budgets_bytes_change_in_a_straight_line():
    lines = roofline([measured(0, 800.0), measured(6300, 200.0), measured(10, 799.0)], 1200.0, None)
    middle = min(lines.budgets, key=lambda budget: abs(budget - 3155))
    assert at(lines, "drive", middle) == pytest.approx(1200 / (799 - 599 * (middle - 10) / 6290))
    assert list(lines.budgets) == sorted(set(lines.budgets))


def test_where_nothing_is_read_the_drive_is_no_ceiling():
    lines = roofline([measured(100, 0.0)], 9000.0, None)
    assert lines.drive == (None,) and lines.memory == (None,)
