"""Times are worked out by hand, or compared with max(read, compute), which no schedule can beat."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.planning.planner import plan_trunk
from uringinfer.planning.schedule import ExpertTurns, pass_seconds

KIMI_K3 = [2_341_213_184] + [
    844_335_616 if layer % 4 == 3 or layer == 92 else 1_267_744_256 for layer in range(1, 93)
]


def seconds(plan, drive, compute):
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


def test_what_was_just_read_may_take_longer_to_compute():
    plan = plan_trunk([10] * 10, 60)  # 4 pinned, 6 through two slots; all are computed at 10 bytes/s

    def taken(**options):
        return pass_seconds(plan.unit_bytes, plan.pinned, plan.ring_slots, 1e6, 10.0, **options)

    assert taken() == pytest.approx(10.0, rel=1e-3)
    assert taken(streamed_compute=5.0) == pytest.approx(4 * 1.0 + 6 * 2.0, rel=1e-3)


def test_pinned_units_cost_compute_only():
    plan = plan_trunk([10] * 10, 100)

    assert seconds(plan, 1.0, 2.0) == pytest.approx(50)


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


def in_turns(*, drive=1.0, compute=1.0, latency=0.0, in_flight=0.0, count=1, **turns):
    """Seconds of a pass whose trunk, 10 bytes, is in memory and computed at 10 bytes/s: one second."""
    turns = {"used": 4, "absence": 0.0, "compute": compute, "read": 1.0 / drive} | turns
    experts = ExpertTurns(count=count, **turns)
    return pass_seconds([10], [0], 0, 1.0, 10.0, experts, latency=latency, in_flight_bytes=in_flight)


def test_a_turn_of_experts_in_memory_takes_their_compute():
    assert in_turns(compute=2.0) == pytest.approx(1 + 4 * 2.0)


def test_a_turn_whose_experts_are_all_missed_ends_with_the_compute_of_the_last_to_arrive():
    assert in_turns(absence=1.0, compute=2.0, read=10.0) == pytest.approx(1 + 4 * 10.0 + 2.0)
    # a drive that is faster than the compute shows once: nothing is there to begin with
    assert in_turns(absence=1.0, compute=2.0, read=1.0) == pytest.approx(1 + 1.0 + 4 * 2.0)


def test_a_turn_is_the_mean_over_how_many_are_missed():
    # both there: 4; one missed: it comes at 3 and takes 2 more; both missed: the second comes at 6
    found = in_turns(used=2, absence=0.5, compute=2.0, read=3.0)
    assert found == pytest.approx(1 + 0.25 * 4 + 0.5 * 5 + 0.25 * 8, rel=0.01)


def test_the_processor_pays_for_reads_and_for_guesses():
    # four reads of no length, and a guess in each turn but the last of a pass
    assert in_turns(absence=1.0, read=0.0, per_read=0.5) == pytest.approx(1 + 4 + 4 * 0.5)
    assert in_turns(count=3, guess=0.25) == pytest.approx(1 + 3 * 4 + 2 * 0.25)


def test_a_lone_read_takes_the_latency_longer_and_a_batch_takes_it_once():
    assert in_turns(used=1, absence=1.0, latency=0.5) == pytest.approx(1 + 1.5 + 1.0)
    assert in_turns(absence=1.0, compute=0.0, latency=0.5) == pytest.approx(1 + 0.5 + 4 * 1.0)


def test_what_is_foreseen_is_read_during_the_turn_before():
    # 4 reads of 1 s fit into the 4 s of the turn before; the first turn is not guessed about and waits 4 s
    blind, seeing = (
        in_turns(count=2, absence=1.0, read=1.0, compute=1.0, foreseen=foreseen) for foreseen in (0.0, 1.0)
    )
    assert blind == pytest.approx(1 + 2 * (1.0 + 4.0))
    # the first turn's own reads go before: the guesses come behind them and behind its last compute
    assert seeing == pytest.approx(1 + (1.0 + 4.0) + 3.0 + 1.0)


def test_wrong_guesses_cost_the_drive_only_what_it_has_begun():
    turns = {"count": 2, "used": 1, "absence": 1.0, "compute": 0.0, "read": 1.0}
    assert in_turns(**turns, wrong=8.0) == pytest.approx(in_turns(**turns))
    # two are in flight when the second turn asks for its own
    assert in_turns(**turns, wrong=8.0, in_flight=8.0) == pytest.approx(in_turns(**turns) + 2.0)


@given(
    absence=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    foreseen=st.floats(0, 1),
    read=st.floats(0.1, 10),
    latency=st.floats(0, 1),
)
@settings(max_examples=40, deadline=None)
def test_a_pass_takes_no_less_than_its_parts_and_fewer_misses_never_cost_more(
    absence, foreseen, read, latency
):
    few, many = sorted(absence)

    def taken(absence, foreseen):
        return in_turns(count=4, absence=absence, foreseen=foreseen, read=read, latency=latency)

    assert taken(few, 0.0) <= taken(many, 0.0) * (1 + 1e-9)
    computing = 1 + 4 * 4
    assert taken(few, foreseen) >= max(computing, 0.98 * 4 * 4 * few * read)


def test_turns_of_experts_hold_the_processor_between_pinned_units():
    turns = ExpertTurns(count=3, used=1, absence=0.0, compute=7.0, read=5.0)

    assert pass_seconds([10, 10], [0, 1], 0, 1.0, 2.0, turns) == pytest.approx(10.0 + 3 * 7.0)


def test_the_trunk_is_read_during_the_turns_except_while_these_read():
    # per pass: 20 bytes to read at 1 byte/s, 2 s of compute, and one turn of experts
    def with_turn(seconds, absence=0.0, read=0.0):
        turns = ExpertTurns(1, 1, absence, seconds, read)
        return pass_seconds([20], [], 2, 1.0, 10.0, turns)

    assert with_turn(15.0) == pytest.approx(20.0)  # hidden behind the trunk's read
    assert with_turn(0.0, 1.0, 15.0) == pytest.approx(35.0)  # the drive is busy with the one, then the other
    assert with_turn(50.0, 1.0, 10.0) == pytest.approx(62.0)  # the processor waits for the expert alone
