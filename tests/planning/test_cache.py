"""The split between trunk and expert cache; expected numbers are written out from the definitions."""

import numpy as np
import pytest

from uringinfer.planning.cache import (
    PRIOR,
    ExpertSizes,
    curve_of_usage,
    expected_hit_rate,
    plan_cache,
    split_slots,
)
from uringinfer.planning.memory import ModelSizes, default_budget, plan_memory

MIB = 1 << 20
EXPERTS = ExpertSizes(layers=10, count=100, per_token=4, record_bytes=MIB)
SIZES = ModelSizes(unit_bytes=(8 * MIB,) * 20, state_bytes=MIB, scratch_bytes=MIB, experts=EXPERTS)
FIXED = 30 * MIB + 16 * MIB + 2 * MIB
"""Interpreter, reserve, state and scratch."""


def plan(weights, **options):
    """A plan with so many bytes for trunk and cache (and 2 MiB for page tables and rounding)."""
    return plan_memory(SIZES, FIXED + weights + 2 * MIB, interpreter_bytes=30 * MIB, **options)


def test_the_prior_is_followed_between_its_points():
    assert expected_hit_rate(0, EXPERTS, PRIOR) == 0
    assert expected_hit_rate(30, EXPERTS, PRIOR) == pytest.approx(0.315)
    assert expected_hit_rate(45, EXPERTS, PRIOR) == pytest.approx((0.315 + 0.437) / 2)
    assert expected_hit_rate(1000, EXPERTS, PRIOR) == 1


def test_a_planned_cache_says_what_it_is_expected_to_miss():
    cache = plan_cache(60, EXPERTS, None)
    assert cache.nbytes == 60 * MIB
    assert cache.bytes_per_token == round((1 - 0.437) * 10 * 4 * MIB)
    assert cache.basis == "prior of a public trace"
    assert plan_cache(60, EXPERTS, PRIOR).basis == "this model's usage"


def test_a_curve_of_usage_takes_the_most_used_first():
    counts = np.array([[0, 6, 0, 2], [1, 0, 1, 0]]) * 10**6  # so many that chance explains none of it
    curve = dict(curve_of_usage(counts))
    found = (curve[0.0], curve[1 / 8], curve[2 / 8], curve[4 / 8], curve[1.0])
    assert found == pytest.approx((0, 0.6, 0.8, 1, 1), abs=1e-5)
    with pytest.raises(ValueError, match="no expert was used"):
        curve_of_usage(np.zeros((2, 3), np.int64))


def test_what_chance_explains_of_the_counts_is_no_use_to_a_cache():
    # experts of equal use, whose counts differ as they are drawn: the next run's most used are others
    drawn = np.random.default_rng(0).poisson(18, size=(14, 32))
    most_used = np.sort(drawn.reshape(-1))[::-1][:224].sum() / drawn.sum()
    assert most_used > 0.57
    assert dict(curve_of_usage(drawn))[0.5] == pytest.approx(0.5, abs=0.02)


def test_a_curve_of_usage_gives_what_the_most_used_ones_hit_in_the_next_run():
    generator = np.random.default_rng(1)
    rates = generator.gamma(2.0, 9.0, size=(14, 32))
    seen, unseen = generator.poisson(rates), generator.poisson(100 * rates)
    chosen = np.argsort(-seen.reshape(-1))[:112]
    hit = unseen.reshape(-1)[chosen].sum() / unseen.sum()
    assert dict(curve_of_usage(seen))[0.25] == pytest.approx(hit, abs=0.01)


def test_the_trunk_comes_before_all_but_two_layers_of_slots():
    cramped = plan(100 * MIB)
    assert 2 * EXPERTS.per_token <= cramped.cache.slots < 2 * EXPERTS.per_token + 8
    assert cramped.trunk.pinned_bytes > 60 * MIB
    roomy = plan(300 * MIB)
    assert roomy.trunk.streamed_bytes == 0
    assert roomy.cache.slots == 140


def test_usage_changes_what_is_expected_and_no_byte_of_cache_saves_more_than_one():
    counts = np.ones((10, 100), np.int64)
    counts[:, :4] = 10**9
    learned = plan(200 * MIB, usage=curve_of_usage(counts)).cache
    assert learned.basis == "this model's usage"
    assert learned.hit_rate == pytest.approx(1.0, abs=0.01)
    small = plan_cache(10, EXPERTS, curve_of_usage(counts))
    assert small.hit_rate <= 10 / 40


def test_each_budget_bounds_its_own_part():
    chosen = plan(200 * MIB, trunk_budget=48 * MIB, cache_budget=20 * MIB)
    assert chosen.trunk.arena_bytes <= 48 * MIB
    assert chosen.cache.slots == 20
    assert plan(200 * MIB, trunk_budget=48 * MIB).cache.slots == 152
    assert plan(200 * MIB, cache_budget=20 * MIB).trunk.streamed_bytes == 0


def test_nothing_goes_over_the_room_at_any_budget():
    for weights in range(16, 1300, 37):
        chosen = plan(weights * MIB)
        assert chosen.trunk.arena_bytes + chosen.cache.nbytes <= weights * MIB + 2 * MIB
        assert chosen.used_bytes <= chosen.budget
        assert EXPERTS.least_slots <= chosen.cache.slots <= EXPERTS.total
        assert sum(row.nbytes for row in chosen.rows()) == chosen.budget


def test_the_floor_and_everything_count_the_experts():
    chosen = plan(300 * MIB)
    assert chosen.floor >= FIXED + (8 + EXPERTS.least_slots) * MIB
    assert chosen.everything >= FIXED + (160 + 1000) * MIB
    assert default_budget(SIZES, 1 << 40, interpreter_bytes=30 * MIB) == chosen.everything


def test_a_cache_never_holds_more_than_there_is():
    assert split_slots(10_000 * MIB, 160 * MIB, 16 * MIB, EXPERTS) == EXPERTS.total


def test_the_expected_reads_of_a_token_include_the_experts():
    chosen = plan(300 * MIB)
    assert chosen.bytes_per_token == chosen.cache.bytes_per_token
    assert chosen.to_json()["cache"]["slots"] == 140


def test_what_is_guessed_is_not_missed_but_in_the_first_layer():
    sure = plan_cache(60, EXPERTS, None, recall=1.0)
    assert sure.miss_rate == pytest.approx((1 - 0.437) / 10)
    assert plan_cache(60, EXPERTS, None, recall=0.5).miss_rate == pytest.approx((1 - 0.437) * 0.55)
    assert plan_cache(60, EXPERTS, None).miss_rate == 1 - 0.437
    # it is read all the same
    assert sure.bytes_per_token == plan_cache(60, EXPERTS, None).bytes_per_token
