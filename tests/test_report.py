"""Run statistics, from counters that are written out by hand."""

import json
from dataclasses import replace

import pytest

from uringinfer.planning.paging import PagingCounters
from uringinfer.report import Phase, RunStatistics, Setup, Snapshot
from uringinfer.residency.expert_statistics import ExpertStatistics
from uringinfer.residency.trunk import TrunkStatistics


def snapshot(seconds, passes, pinned, streamed, rows, waited, system, written=0, busy=0.0):
    trunk = TrunkStatistics(passes, pinned, streamed, rows, waited * 0.75, waited * 0.25, busy)
    return Snapshot(seconds, trunk, ExpertStatistics(), seconds, system, written)


START = snapshot(10.0, passes=1, pinned=100, streamed=300, rows=5, waited=1.0, system=0.5, busy=1.5)
END = snapshot(14.0, passes=5, pinned=500, streamed=2_000_000_300, rows=25, waited=3.0, system=0.9, busy=4.0)
PHASE = Phase.between(START, END, tokens=4)
IDLE = Phase.between(END, END, tokens=0)

SETUP = Setup(
    model="small.uring",
    family="llama",
    budget=3 << 30,
    context=512,
    chunk=64,
    pinned_bytes=1 << 30,
    streamed_bytes=3 << 30,
    plan_reason="5 of 20 units pinned",
    placement="spread",
    ring_slots=2,
    reader="uring",
    is_direct=True,
    direct_reason="ext4, the page cache stayed empty",
    overlaps=True,
    arena_bytes=2 << 30,
    huge_bytes=2 << 30,
    kernels="native",
    simd="avx2",
    threads=2,
    verify_reads=True,
    checksums="isal",
)


def with_setup(**changes):
    values = {name: getattr(SETUP, name) for name in SETUP.__slots__}
    return Setup(**(values | changes))


def run_statistics(prompt=PHASE, decode=PHASE, setup=SETUP):
    return RunStatistics(setup, prompt, decode, 2.5, 4.25, peak_rss=2 << 30, bytes_written=0)


def test_a_phase_is_the_difference_of_two_moments():
    assert (PHASE.passes, PHASE.tokens, PHASE.seconds, PHASE.wait_seconds) == (4, 4, 4.0, 2.0)
    assert (PHASE.pinned_bytes, PHASE.streamed_bytes, PHASE.embedding_bytes) == (400, 2_000_000_000, 20)


def test_rates_of_a_phase_follow_from_its_counters():
    assert PHASE.tokens_per_second == 1.0
    assert PHASE.bytes_per_token == 500_000_005
    assert PHASE.wait_share == 0.5
    assert PHASE.read_rate == 500_000_005
    assert PHASE.in_flight_share == 0.625
    assert PHASE.in_flight_rate == pytest.approx(2_000_000_020 / 2.5)
    assert PHASE.hit_rate == pytest.approx(400 / 2_000_000_400)
    assert PHASE.system_seconds_per_gb == pytest.approx(0.2)


def test_a_phase_that_did_nothing_has_no_rates():
    values = IDLE.to_json()
    assert {name for name, value in values.items() if value is None} == {
        "tokens_per_second",
        "bytes_per_token",
        "hit_rate",
        "disk_wait_share",
        "in_flight_share",
        "in_flight_bytes_per_second",
        "read_bytes_per_second",
        "system_seconds_per_gb",
        "experts",
        "stalled_seconds",
    }


@pytest.mark.parametrize(
    ("waited", "overlaps", "bound"),
    [(3.0, True, "drive"), (3.0, False, "one read at a time"), (1.2, True, "memory or compute")],
)
def test_waiting_decides_what_bound_the_run(waited, overlaps, bound):
    end = snapshot(14.0, passes=5, pinned=500, streamed=900, rows=25, waited=waited, system=0.9)
    phase = Phase.between(START, end, tokens=4)
    assert run_statistics(decode=phase, setup=with_setup(overlaps=overlaps)).bound_by == bound


def test_a_run_without_decoding_is_judged_by_its_prompt():
    assert run_statistics(decode=IDLE).bound_by == "drive"


def test_json_is_plain_and_names_what_the_text_says():
    values = json.loads(json.dumps(run_statistics().to_json()))
    assert values["decode"]["tokens_per_second"] == 1.0
    assert values["setup"]["hit_rate"] == 0.25
    assert values["peak_rss_bytes"] == 2 << 30
    assert values["bytes_written"] == 0


def test_the_text_gives_rates_memory_and_what_bound_the_run():
    text = run_statistics().to_text()
    assert "decode: 4 tokens in 4.00 s, 1.00 tokens/s, 476.84 MiB read per token" in text
    assert "50% waiting for the drive" in text
    assert "200 ms kernel CPU per GB" in text
    assert "peak memory 2.00 GiB of 3.00 GiB; written to storage: 0 B; bound by drive" in text


def test_experts_that_were_guessed_before_a_phase_may_be_more_than_were_read_in_it():
    experts = ExpertStatistics(
        hits=90, misses=3, prefetched=7, guesses=4, demanded_bytes=3 << 20, guessed_bytes=4 << 20
    )
    before, after = (
        replace(moment, experts=counted) for moment, counted in ((START, ExpertStatistics()), (END, experts))
    )
    line = run_statistics(decode=Phase.between(before, after, tokens=4)).to_text().split("  experts: ")[1]
    assert (
        line.splitlines()[0]
        == "90 hit, 7 prefetched, 3 missed (3.00 MiB); 4 read ahead (4.00 MiB); hit rate 97.0%"
    )


def test_a_phase_without_tokens_is_left_out_of_the_text():
    assert "decode" not in run_statistics(decode=IDLE).to_text()


def test_the_start_line_says_why_a_cache_would_not_help():
    text = SETUP.to_text()
    assert "hit rate 25.0% (an LRU cache would hit 0 %: each pass uses everything once)" in text
    assert (
        "reader uring, direct, checked (isal); reads overlap compute; 2.00 GiB of 2.00 GiB in huge pages"
        in text
    )


def test_the_start_line_says_what_was_not_obtained():
    text = with_setup(
        is_direct=False, direct_reason="tmpfs has no drive", overlaps=False, huge_bytes=0
    ).to_text()
    assert (
        "the page cache (tmpfs has no drive), checked (isal); reads do not overlap compute; 0 B of 2.00"
        in text
    )


def test_a_model_that_is_all_in_memory_reads_nothing():
    text = with_setup(streamed_bytes=0).to_text()
    assert "hit rate 100.0%\n" in text
    assert "nothing is read while the model runs" in text
    assert "only experts are read" in with_setup(streamed_bytes=0, cache_slots=8).to_text()


def test_written_bytes_come_from_the_kernels_count(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/io").write_text("rchar: 5\nread_bytes: 7\nwrite_bytes: 4096\n")
    assert Snapshot.take(START.trunk, proc=tmp_path).bytes_written == 4096
    assert Snapshot.take(START.trunk, proc=tmp_path / "none").bytes_written is None


def test_a_run_within_its_budget_warns_of_nothing():
    assert run_statistics().warnings() == []
    assert run_statistics().to_json()["exceeded_bytes"] == 0


def test_a_run_that_exceeded_its_budget_says_by_how_much():
    statistics = run_statistics(setup=with_setup(budget=(2 << 30) - (5 << 20)))

    [warning] = statistics.warnings()
    assert "exceeded by 5.00 MiB (peak memory 2.00 GiB)" in warning
    assert statistics.to_json()["exceeded_bytes"] == 5 << 20


def test_what_a_process_had_before_is_not_the_runs_excess():
    statistics = replace(run_statistics(setup=with_setup(budget=1 << 30)), peak_before=2 << 30)

    assert statistics.warnings() == []


def test_paging_while_decoding_is_warned_of_and_counted():
    paged = replace(PHASE, paging=PagingCounters(major_faults=5000))

    [warning] = run_statistics(decode=paged).warnings()
    assert "5000 pages" in warning
    assert run_statistics(decode=paged).to_json()["decode"]["major_faults"] == 5000
