import pytest

from uringinfer.errors import UsageError
from uringinfer.planning.rates import Rates


def test_rates_come_back_from_their_json():
    rates = Rates(2e9, 1e10, None, 9e-5, 0.0, 2e-4, "saved by probe", "assumed", "clocked")
    assert Rates.from_json(rates.to_json()) == rates


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {"speed": 1.0},
        {"drive": "fast"},
        {"drive": 0},
        {"drive": -1.0},
        {"drive": float("nan")},
        {"latency": float("inf")},
        {"compute": True},
        {"drive_origin": "rumour"},
        {"drive_origin": None},
    ],
)
def test_what_cannot_be_rates_is_refused(found):
    with pytest.raises(UsageError, match="rates"):
        Rates.from_json(found)


def test_trunk_and_experts_blend_by_the_time_they_take():
    assert Rates(compute=100.0, expert_compute=50.0).blended(100, 50) == 75.0
    assert Rates().blended(1, 1) is None
