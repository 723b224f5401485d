"""Expected numbers are written out by hand from the definitions in docs/planning.md."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uringinfer.container.manifest import Segment
from uringinfer.errors import BudgetError
from uringinfer.planning.memory import ModelSizes, default_budget, plan_memory, shares_note

MIB = 1 << 20
SIZES = ModelSizes(
    unit_bytes=(8 * MIB,) * 20,
    state_bytes=10 * MIB,
    scratch_bytes=6 * MIB,
    embedding_bytes=50 * MIB,
    staging_bytes=32 * 8192,
    row_bytes=4096,
)
FIXED = 32 * MIB + 16 * MIB + 10 * MIB + 6 * MIB
STAGING = 32 * 8192


def plan(budget, **options):
    return plan_memory(SIZES, budget, interpreter_bytes=32 * MIB, **options)


def arena_of(nbytes):
    """Whole 2 MiB pages, and 8 bytes of page table for each 4 KiB."""
    arena = -(-nbytes // (2 * MIB)) * 2 * MIB
    return arena + arena // 512


@given(st.integers(80 * MIB, 400 * MIB), st.sampled_from(["spread", "prefix"]), st.integers(1, 3))
def test_the_rows_add_up_to_the_budget_and_none_is_negative(budget, placement, slots):
    result = plan(budget, placement=placement, ring_slots=slots)

    assert sum(row.nbytes for row in result.rows()) == budget
    assert all(row.nbytes >= 0 for row in result.rows())


@given(st.integers(80 * MIB, 400 * MIB))
def test_the_next_unit_would_not_fit(budget):
    result = plan(budget)

    if result.trunk.streamed_bytes:
        assert result.unused_bytes < 8 * MIB + 2 * MIB + 4096


def test_the_floor_counts_everything_and_is_enough():
    floor = FIXED + arena_of(8 * MIB + STAGING)

    result = plan(floor)

    assert result.floor == floor
    assert (result.trunk.pinned_count, result.trunk.ring_slots, result.trunk.overlaps) == (0, 1, False)


def test_one_byte_below_the_floor_is_refused_with_both_numbers():
    floor = FIXED + arena_of(8 * MIB + STAGING)

    with pytest.raises(BudgetError, match=rf"\({floor - 1} bytes\).*\({floor} bytes\)") as caught:
        plan(floor - 1)

    assert (caught.value.floor, caught.value.budget) == (floor, floor - 1)


def test_a_floor_that_is_printed_is_a_margin_above_the_least_that_is_accepted():
    least = FIXED + arena_of(8 * MIB + STAGING)

    assert plan(least, margin=3 * MIB).floor == least + 3 * MIB
    with pytest.raises(BudgetError) as caught:
        plan(least - 1, margin=3 * MIB)
    assert caught.value.floor == least + 3 * MIB


def test_what_opening_took_is_a_floor_too():
    with pytest.raises(BudgetError, match="opening the model takes so much") as caught:
        plan(200 * MIB - 1, opening_peak=200 * MIB, margin=MIB)

    assert caught.value.floor == 201 * MIB
    assert plan(200 * MIB, opening_peak=200 * MIB).floor == 200 * MIB


def test_shares_that_do_not_fit_into_the_budget_are_told():
    result = plan(140 * MIB, trunk_budget=100 * MIB)

    assert "100.00 MiB of trunk" in shares_note(result, 100 * MIB, None)
    assert shares_note(result, 70 * MIB, None) is None
    assert shares_note(result, None, 10**12) is None  # there are no experts to promise memory to


def test_a_share_of_more_than_the_model_has_is_no_broken_promise():
    assert shares_note(plan(400 * MIB, trunk_budget=10**12), 10**12, None) is None


def test_reads_overlap_from_the_overlap_floor_on():
    result = plan(200 * MIB)

    assert result.overlap_floor == FIXED + arena_of(16 * MIB + STAGING)
    assert plan(result.overlap_floor).trunk.overlaps
    assert not plan(result.overlap_floor - 1).trunk.overlaps


def test_the_embedding_table_is_pinned_only_when_everything_else_is():
    everything = FIXED + arena_of(160 * MIB + 50 * MIB + STAGING)

    assert plan(everything).everything == everything
    assert plan(everything).embedding_pinned
    assert plan(everything).bytes_per_token == 0
    without_table = plan(everything - 1)
    assert (without_table.embedding_pinned, without_table.trunk.streamed_bytes) == (False, 0)


def test_a_token_reads_what_streams_and_the_block_of_its_embedding_row():
    result = plan(FIXED + arena_of(16 * MIB + STAGING))

    assert result.bytes_per_token == 160 * MIB + 4096


def test_a_trunk_budget_bounds_the_trunk_alone():
    result = plan(400 * MIB, trunk_budget=40 * MIB)

    assert (result.trunk.pinned_count, result.trunk.arena_bytes) == (3, 40 * MIB)


def test_sizes_come_from_the_segments_of_a_container():
    segments = [
        Segment("embedding", "embedding", 0, 12288, 0, False, ()),
        Segment("layers.0", "layers.0", 12288, 8192, 0, True, ()),
        Segment("head", "head", 20480, 4096, 0, True, ()),
    ]

    sizes = ModelSizes.of_segments(segments, state_bytes=1, scratch_bytes=2, staging_bytes=3, row_bytes=4)

    assert sizes == ModelSizes((8192, 4096), 1, 2, embedding_bytes=12288, staging_bytes=3, row_bytes=4)


@pytest.mark.parametrize(
    ("usable", "budget"),
    [
        (1 << 40, FIXED + arena_of(210 * MIB + STAGING)),  # everything
        (200 * MIB, 150 * MIB),  # three quarters
        (90 * MIB, FIXED + arena_of(8 * MIB + STAGING)),  # the floor
    ],
)
def test_the_default_is_three_quarters_within_the_floor_and_everything(usable, budget):
    assert default_budget(SIZES, usable, interpreter_bytes=32 * MIB) == budget


def test_no_default_exists_below_the_floor():
    with pytest.raises(BudgetError, match="needs at least"):
        default_budget(SIZES, 70 * MIB, interpreter_bytes=32 * MIB)


def test_the_json_holds_the_table_and_is_plain():
    data = json.loads(json.dumps(plan(150 * MIB).to_json()))

    assert data["floor"] < data["overlap_floor"] < data["budget"] == 150 * MIB < data["everything"]
    assert data["trunk"]["pinned_count"] == len(data["trunk"]["pinned"])
