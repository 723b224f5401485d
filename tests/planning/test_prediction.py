"""Predicted tokens per second, written out by hand; and what a prediction says it rests on."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.planning.cache import ExpertSizes
from uringinfer.planning.memory import ModelSizes, plan_memory
from uringinfer.planning.prediction import assumptions_of, predict_tokens_per_second
from uringinfer.planning.rates import ASSUMED_LATENCY, Rates

MIB = 1 << 20
DENSE = ModelSizes(unit_bytes=(8 * MIB,) * 20, state_bytes=MIB, scratch_bytes=MIB)
EXPERTS = ExpertSizes(layers=10, count=100, per_token=4, record_bytes=MIB)
MIXED = replace(DENSE, experts=EXPERTS)
EVERYTHING = 1200 * MIB


def plan(weights, sizes=MIXED, **options):
    """A plan with so many bytes for the weights (and 2 MiB for page tables and rounding)."""
    return plan_memory(sizes, (48 + 2) * MIB + weights, interpreter_bytes=30 * MIB, **options)


def predict(plan, drive, compute=None, experts=None, latency=0.0, **rates):
    return predict_tokens_per_second(plan, Rates(drive, compute, experts, latency, **rates))


def test_overlapped_reads_hide_compute_and_a_single_slot_adds_it():
    # 10 of 20 units stream: 80 MiB at 80 MiB/s; 160 MiB of weights at 320 MiB/s
    assert predict(plan(96 * MIB, DENSE), 80.0 * MIB, 320.0 * MIB) == pytest.approx(1.0, rel=1e-2)
    # 9 of 20 stream: 0.9 s, and 0.5 s after them
    alone = plan(96 * MIB, DENSE, ring_slots=1)
    assert predict(alone, 80.0 * MIB, 320.0 * MIB) == pytest.approx(1 / 1.4, rel=1e-3)
    # each of the 9 is alone, and takes the latency longer
    assert predict(alone, 80.0 * MIB, 320.0 * MIB, latency=0.1) == pytest.approx(1 / 2.3, rel=1e-3)


def test_without_reads_only_compute_bounds_the_rate():
    everything = plan(EVERYTHING, DENSE)

    assert predict(everything, 1e9) is None
    assert predict(everything, 1e9, 320.0 * MIB) == pytest.approx(2.0)
    assert predict(everything, None, 320.0 * MIB) is None


def test_without_a_compute_rate_the_bytes_are_all():
    small = plan(160 * MIB + 60 * MIB)
    assert predict(small, 10.0 * MIB) == pytest.approx(10 * MIB / small.bytes_per_token)


def test_the_row_of_an_embedding_is_a_read_of_its_own():
    sizes = replace(DENSE, embedding_bytes=900 * MIB, row_bytes=MIB, staging_bytes=MIB)
    alone = plan(EVERYTHING - 500 * MIB, sizes)
    # half a second of compute; before it, one row of 1 MiB at 10 MiB/s
    assert predict(alone, 10.0 * MIB, 320.0 * MIB, latency=0.4) == pytest.approx(1 / (0.5 + 0.1 + 0.4))


def test_experts_have_a_compute_rate_of_their_own():
    # 160 MiB at 160 MiB/s and 40 MiB at 20 MiB/s
    assert predict(plan(EVERYTHING), 1e9, 160.0 * MIB, 20.0 * MIB) == pytest.approx(1 / 3, rel=1e-3)


def test_missed_experts_are_waited_for_and_compute_hides_a_part_of_it():
    small = plan(160 * MIB + 60 * MIB)
    reading, computing = (1 - 0.437) * 40 / 100, 1.0
    found = 1 / predict(small, 100.0 * MIB, 200.0 * MIB)
    assert max(reading, computing) < found < reading + computing


def test_reads_and_guesses_cost_the_processor_what_was_clocked():
    plain = plan(160 * MIB + 60 * MIB, recall=0.8)
    fast = 1e6 * MIB
    base, reads, guesses = (
        1 / predict(plain, fast, 200.0 * MIB, **clocked)
        for clocked in ({}, {"per_read": 0.01}, {"guess": 0.01})
    )
    assert reads - base == pytest.approx(0.01 * 40 * (1 - 0.437), rel=0.02)
    assert guesses - base == pytest.approx(0.01 * 9, rel=0.01)  # not about the first of ten layers
    full = plan(EVERYTHING, recall=0.8)  # where nothing is missing, nothing is guessed
    assert predict(full, fast, 200.0 * MIB, guess=0.01) == predict(full, fast, 200.0 * MIB)


def test_guesses_help_until_the_drive_is_never_free():
    def predicted(drive, recall):
        return predict(plan(160 * MIB + 60 * MIB, recall=recall), drive, 200.0 * MIB)

    assert predicted(60.0 * MIB, 0.8) > 1.15 * predicted(60.0 * MIB, None)
    read = plan(160 * MIB + 60 * MIB).bytes_per_token
    assert predicted(5.0 * MIB, 0.8) == pytest.approx(5 * MIB / read, rel=0.1)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(20, EVERYTHING // MIB), min_size=2, max_size=2),
    st.sampled_from([None, 0.5, 0.9]),
    st.sampled_from([20.0, 100.0, 1000.0]),
)
def test_more_memory_is_never_predicted_to_be_slower(budgets, recall, drive):
    less, more = (
        predict(plan(budget * MIB, recall=recall, named=4), drive * MIB, 400.0 * MIB, latency=1e-3)
        for budget in sorted(budgets)
    )
    assert more >= less * 0.97  # which units are pinned is not perfect at every budget


def test_every_figure_says_where_it_comes_from():
    rates = Rates(2e9, 1e10, None, 9e-5, None, 2e-4, "saved by probe", "clocked", "given")
    found = {line.what: (line.value, line.origin) for line in assumptions_of(plan(300 * MIB), rates)}

    assert found == {
        "drive, many reads in flight": ("2.00 GB/s", "saved by probe"),
        "latency of a lone read": ("90 us", "clocked"),
        "compute": ("10.00 GB/s", "given"),
        "compute of experts": ("as the rest", "assumed"),
        "processor for a guess about a layer": ("no time", "assumed"),
        "processor for a read of an expert": ("200 us", "given"),
        "experts in memory": (f"{plan(300 * MIB).cache.hit_rate:.1%}", "prior of a public trace"),
        "experts guessed in time": ("none", "assumed: nothing was learned"),
    }


def test_the_compute_of_what_streams_is_named_where_something_does():
    rates = Rates(2e9, 1e10, streamed_compute=5e9, compute_origin="clocked")
    small, everything = plan(96 * MIB, DENSE), plan(EVERYTHING, DENSE)
    whats = {line.what: (line.value, line.origin) for line in assumptions_of(small, rates)}
    assert whats["compute of what was just read"] == ("5.00 GB/s", "clocked")
    assert "compute of what was just read" not in {line.what for line in assumptions_of(everything, rates)}
    # 10 of 20 units stream: half of 160 MiB at 320 MiB/s, the other half at 80 MiB/s
    taken = 1 / predict(small, 1e6 * MIB, 320.0 * MIB, streamed_compute=80.0 * MIB)
    assert taken == pytest.approx(0.25 + 1.0, rel=0.01)


def test_what_is_not_known_is_said_to_be_assumed():
    without_latency = assumptions_of(plan(300 * MIB, DENSE), Rates(2e9, 1e10))
    assert (without_latency[1].value, without_latency[1].origin) == (
        f"{ASSUMED_LATENCY * 1e6:.0f} us",
        "assumed",
    )
    assert [line.origin for line in assumptions_of(plan(300 * MIB, DENSE), Rates(2e9))] == [
        "given",
        "assumed",
    ]
    learned = assumptions_of(plan(300 * MIB, recall=0.75), Rates(2e9))[-1]
    assert (learned.value, learned.origin) == ("75.0%", "this model's usage")
    assert assumptions_of(plan(300 * MIB), Rates()) == []
