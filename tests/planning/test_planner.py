"""The oracle here enumerates: every prefix, or every set of units, whatever it costs."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.errors import BudgetError, UsageError
from uringinfer.planning.planner import plan_trunk, trunk_floor

GB = 10**9
KIMI_K3 = [2_341_213_184] + [
    844_335_616 if layer % 4 == 3 or layer == 92 else 1_267_744_256 for layer in range(1, 93)
]

units = st.lists(st.integers(1, 60), min_size=1, max_size=9)
repetitive_units = st.lists(st.sampled_from([7, 10, 40]), min_size=1, max_size=9)
any_units = st.one_of(units, repetitive_units)
many_sizes = st.lists(st.integers(1, 400), min_size=10, max_size=12, unique=True)
shares = st.floats(0, 1.1)
placements = st.sampled_from(["prefix", "spread"])


def slot_of(sizes, pinned):
    return max((size for index, size in enumerate(sizes) if index not in pinned), default=0)


def fits(sizes, pinned, budget, slots):
    return sum(sizes[index] for index in pinned) + slots * slot_of(sizes, pinned) <= budget


def subsets(count):
    return (set(chosen) for size in range(count + 1) for chosen in combinations(range(count), size))


def a_budget(sizes, share):
    floor = max(sizes)
    return floor + int(share * (sum(sizes) - floor))


def gaps(pinned, count):
    """Units between neighbouring pins, around the end as well."""
    return [(after - before) % count for before, after in zip(pinned, pinned[1:] + pinned[:1], strict=True)]


@pytest.mark.parametrize(("budget", "count"), [(5, 1), (7, 2), (16, 10), (60, 48)])
def test_a_prefix_of_kimi_k3_pins_the_published_counts_with_two_slots(budget, count):
    plan = plan_trunk(KIMI_K3, budget * GB, placement="prefix")

    assert plan.total_bytes == 108_811_877_376
    assert (plan.pinned, plan.ring_slots) == (tuple(range(count)), 2)


@pytest.mark.parametrize("placement", ["prefix", "spread"])
def test_all_of_kimi_k3_is_pinned_at_110_gb_and_nothing_streams(placement):
    plan = plan_trunk(KIMI_K3, 110 * GB, placement=placement)

    assert plan.pinned_count == 93
    assert (plan.ring_slots, plan.arena_bytes, plan.hit_rate) == (0, 108_811_877_376, 1.0)


@pytest.mark.parametrize("budget", [5, 7, 16, 60])
def test_spreading_kimi_k3_pins_its_large_layer_and_no_fewer_bytes_than_a_prefix(budget):
    prefix = plan_trunk(KIMI_K3, budget * GB, placement="prefix")
    spread = plan_trunk(KIMI_K3, budget * GB, placement="spread")

    assert spread.pinned[0] == 0
    assert spread.slot_bytes == 1_267_744_256
    assert spread.pinned_bytes >= prefix.pinned_bytes


@given(any_units, shares, placements, st.integers(1, 3))
def test_every_plan_is_a_fixed_point_within_its_budget(sizes, share, placement, slots):
    budget = a_budget(sizes, share)

    plan = plan_trunk(sizes, budget, ring_slots=slots, placement=placement)

    assert plan.slot_bytes == slot_of(sizes, plan.pinned)
    assert (
        plan.arena_bytes == sum(sizes[i] for i in plan.pinned) + plan.ring_slots * plan.slot_bytes <= budget
    )
    assert plan.pinned_bytes + plan.streamed_bytes == sum(sizes)
    assert (plan.ring_slots == 0) == (plan.streamed_bytes == 0)


@given(any_units, shares, st.integers(1, 3))
def test_no_longer_prefix_fits(sizes, share, slots):
    budget = a_budget(sizes, share)

    plan = plan_trunk(sizes, budget, ring_slots=slots, placement="prefix")

    longest = max(
        (count for count in range(len(sizes) + 1) if fits(sizes, set(range(count)), budget, plan.ring_slots)),
    )
    assert plan.pinned == tuple(range(longest))


@settings(max_examples=80)
@given(st.one_of(any_units, many_sizes), shares, st.integers(1, 3))
def test_nothing_can_be_added_to_a_spread_plan(sizes, share, slots):
    budget = a_budget(sizes, share)

    plan = plan_trunk(sizes, budget, ring_slots=slots, placement="spread")

    pinned = set(plan.pinned)
    rest = [index for index in range(len(sizes)) if index not in pinned]
    for added in subsets(len(rest)):
        assert not added or not fits(
            sizes, pinned | {rest[i] for i in added}, budget, max(plan.ring_slots, 1)
        )


def test_a_spread_plan_shrinks_its_slots_when_that_pays_for_pinning_what_is_larger():
    # three small units and the one of 21 leave 15 bytes beside slots of 20; slots of 16 free 12 more, which
    # is enough for the unit of 20
    sizes = [16] * 17 + [20, 21] + [16] * 10

    plan = plan_trunk(sizes, 144, ring_slots=3, placement="spread")

    assert {17, 18} <= set(plan.pinned)
    assert plan.slot_bytes == 16


@given(st.integers(1, 40), shares, st.integers(1, 3))
def test_equal_units_are_pinned_as_often_as_possible_at_equal_distances(count, share, slots):
    sizes = [10] * count
    budget = a_budget(sizes, share)

    plan = plan_trunk(sizes, budget, ring_slots=slots, placement="spread")

    if plan.ring_slots:
        assert plan.pinned_count == budget // 10 - plan.ring_slots
    if plan.pinned_count > 1:
        assert max(gaps(plan.pinned, count)) - min(gaps(plan.pinned, count)) <= 1


@given(any_units, shares, placements, st.integers(1, 3))
def test_fewer_slots_than_asked_only_if_no_set_leaves_room_for_more(sizes, share, placement, slots):
    budget = a_budget(sizes, share)

    plan = plan_trunk(sizes, budget, ring_slots=slots, placement=placement)

    sets = subsets(len(sizes)) if placement == "spread" else (set(range(n)) for n in range(len(sizes) + 1))
    if 0 < plan.ring_slots < slots:
        assert not any(fits(sizes, chosen, budget, plan.ring_slots + 1) for chosen in sets)


@given(any_units, placements, st.integers(1, 3))
def test_the_floor_is_the_least_budget_that_gets_its_slots(sizes, placement, slots):
    floor = trunk_floor(sizes, slots, placement)

    assert plan_trunk(sizes, floor, ring_slots=slots, placement=placement).ring_slots in (0, slots)
    if floor > max(sizes):
        assert 0 < plan_trunk(sizes, floor - 1, ring_slots=slots, placement=placement).ring_slots < slots
    else:
        with pytest.raises(BudgetError):
            plan_trunk(sizes, floor - 1, ring_slots=slots, placement=placement)


def test_pinning_two_can_fit_where_pinning_one_does_not():
    # one more pinned unit costs 10 and frees nothing; two more also shrink both slots from 10 to 1
    sizes = [10, 10, 1, 1, 1, 1]

    assert plan_trunk(sizes, 22, placement="prefix").pinned_count == 2
    assert plan_trunk(sizes, 22, placement="spread").pinned == (0, 1)


def test_a_single_slot_says_that_reads_do_not_overlap():
    plan = plan_trunk([100, 100, 100], 150)

    assert (plan.ring_slots, plan.pinned_count, plan.overlaps) == (1, 0, False)
    assert "do not overlap" in plan.reason


def test_one_slot_as_asked_is_not_blamed_on_the_budget():
    assert "as asked" in plan_trunk([100, 100, 100], 250, ring_slots=1).reason


def test_a_budget_below_the_largest_unit_is_refused_with_both_numbers():
    with pytest.raises(BudgetError, match=r"99 bytes .* 100 bytes") as caught:
        plan_trunk([40, 100], 99)

    assert (caught.value.floor, caught.value.budget) == (100, 99)


@pytest.mark.parametrize(("sizes", "slots"), [([0, 5], 2), ([-4096], 2), ([5], 0)])
def test_sizes_and_slots_below_one_are_refused(sizes, slots):
    with pytest.raises(UsageError):
        plan_trunk(sizes, 100, ring_slots=slots)


def test_thousands_of_different_sizes_are_spread_evenly():
    # sizes all different, so that every one of them is a possible slot size
    sizes = [4096 * (1000 + (index * 7919) % 5000) for index in range(5000)]
    budget = sum(sizes) // 2

    plan = plan_trunk(sizes, budget, placement="spread")

    assert budget - 4096 * 6000 < plan.arena_bytes <= budget
    pinned = set(plan.pinned)
    for start in range(0, 5000, 500):
        window = range(start, start + 500)
        here = sum(sizes[index] for index in window if index in pinned) / sum(
            sizes[index] for index in window
        )
        assert abs(here - plan.hit_rate) < 0.02
