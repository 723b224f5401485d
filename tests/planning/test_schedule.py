"""Times are worked out by hand, or compared with max(read, compute), which no schedule can beat."""

import pytest

from uringinfer.planning.planner import plan_trunk
from uringinfer.planning.schedule import ExpertTurns, pass_seconds, turn_seconds

KIMI_K3 = [2_341_213_184] + [
    844_335_616 if layer % 4 == 3 or layer == 92 else 1_267_744_256 for layer in range(1, 93)
]


def seconds(plan, drive, compute=None):
    return pass_seconds(plan.unit_bytes, plan.pinned, plan.ring_slots, drive, compute)


def times_ideal(units, share, placement, compute_per_read):
    """How often the ideal pass fits into the scheduled one, at `share` of the bytes as budget."""
    plan = plan_trunk(units, int(sum(units) * share), placement=placement)
    ideal = max(plan.streamed_bytes, compute_per_read * plan.total_bytes)
    return seconds(plan, 1.0, 1.0 / compute_per_read) / ideal


def test_with_one_slot_every_read_waits_and_is_waited_for():
    plan = plan_trunk([10] * 10, 50, ring_slots=1)

    # 4 pinned; 6 units of 10 bytes read at 1 byte/s, then all 100 bytes at 2 bytes/s
    assert (plan.pinned_count, seconds(plan, 1.0, 2.0)) == (4, pytest.approx(60 + 50))


def test_with_two_slots_the_slower_of_reading_and_computing_is_what_counts():
    plan = plan_trunk([10] * 10, 20)

    assert seconds(plan, 1.0, 2.0) == pytest.approx(100)
    assert seconds(plan, 4.0, 2.0) == pytest.approx(50)


def test_pinned_units_cost_compute_only():
    plan = plan_trunk([10] * 10, 100)

    assert seconds(plan, 1.0, 2.0) == pytest.approx(50)
    assert seconds(plan, 1.0) == 0.0


def test_without_a_compute_rate_reads_are_all():
    assert seconds(plan_trunk([10] * 10, 20), 4.0) == 25.0


@pytest.mark.parametrize("units", [[64] * 400, KIMI_K3], ids=["400 equal units", "Kimi K3"])
@pytest.mark.parametrize("compute_per_read", [0.25, 0.5])
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_a_prefix_leaves_the_drive_idle_and_spreading_keeps_it_reading(units, compute_per_read, share):
    prefix = times_ideal(units, share, "prefix", compute_per_read)
    spread = times_ideal(units, share, "spread", compute_per_read)

    assert 1.04 < prefix < 1.73
    assert 1.0 - 1e-9 < spread < 1.03


def test_spreading_does_not_pin_every_large_unit_to_save_a_little_on_the_slots():
    # each layer has three large segments and three smaller ones; slots of 48 would pin more bytes, but the
    # large ones in bursts
    units = [64, 64, 64, 48, 48, 48] * 60

    assert plan_trunk(units, sum(units) * 6 // 10).slot_bytes == 64
    assert times_ideal(units, 0.6, "spread", 0.4) < 1.02


def test_a_turn_of_experts_in_memory_takes_their_compute():
    assert turn_seconds(4, 0.0, 2.0, 100.0) == 8.0


def test_a_turn_whose_experts_are_all_missed_ends_with_the_compute_of_the_last_to_arrive():
    assert turn_seconds(4, 1.0, 2.0, 10.0) == 4 * 10.0 + 2.0
    # a drive that is faster than the compute is hidden behind it
    assert turn_seconds(4, 1.0, 2.0, 1.0) == 4 * 2.0


def test_a_turn_is_the_mean_over_how_many_are_missed():
    # both there: 4; one of them missed: it comes at 3 and takes 2; both missed: the second comes at 6
    assert turn_seconds(2, 0.5, 2.0, 3.0) == pytest.approx(0.25 * 4 + 0.5 * 5 + 0.25 * 8)


def test_turns_of_experts_hold_the_processor_between_pinned_units():
    turns = ExpertTurns(count=3, seconds=7.0, reading=5.0)

    assert pass_seconds([10, 10], [0, 1], 0, 1.0, 2.0, turns) == pytest.approx(10.0 + 3 * 7.0)
    assert pass_seconds([10, 10], [0, 1], 0, 1.0, None, turns) == 3 * 5.0


def test_the_trunk_is_read_during_the_turns_except_while_these_read():
    # per pass: 20 bytes to read at 1 byte/s, 2 s of compute, and one turn of experts
    def with_turn(seconds, reading):
        return pass_seconds([20], [], 2, 1.0, 10.0, ExpertTurns(1, seconds, reading))

    assert with_turn(15.0, 0.0) == pytest.approx(20.0)  # hidden behind the trunk's read
    assert with_turn(15.0, 15.0) == pytest.approx(35.0)  # the drive is busy with the one, then with the other
    assert with_turn(50.0, 10.0) == pytest.approx(52.0)  # the processor is busy all the time
