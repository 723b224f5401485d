"""Counters as the kernel writes them, in a /proc of the test's own."""

import pytest

from uringinfer.planning.paging import NOTED_FAULTS, PagingCounters

CALM = PagingCounters(NOTED_FAULTS - 1, 4096, 0.1)


def test_swap_and_stalls_are_read_from_proc(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "pressure").mkdir()
    (tmp_path / "self/status").write_text("VmHWM:\t 99 kB\nVmSwap:\t 12 kB\n")
    some = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000"
    (tmp_path / "pressure/memory").write_text(f"{some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n")

    found = PagingCounters.take(tmp_path)

    assert (found.swapped_bytes, found.stalled_seconds) == (12 << 10, 2.5)


def test_without_psi_there_is_no_number(tmp_path):
    assert PagingCounters.take(tmp_path).stalled_seconds is None
    assert PagingCounters(9).since(PagingCounters(2, 0, 1.0)) == PagingCounters(7, 0, None)


def test_swap_is_what_is_there_at_the_end_and_faults_are_those_meanwhile():
    assert PagingCounters(9, 500, 3.0).since(PagingCounters(2, 400, 1.0)) == PagingCounters(7, 500, 2.0)


def test_a_calm_phase_says_nothing():
    assert CALM.notes(10.0) == []
    assert PagingCounters().notes(0.0) == []


@pytest.mark.parametrize(
    ("counters", "said"),
    [
        (PagingCounters(4321, 0, None), "4321 pages"),
        (PagingCounters(0, 64 << 20, None), "64.00 MiB of it are in swap"),
        (PagingCounters(0, 0, 2.5), "25%"),
    ],
)
def test_each_sign_of_paging_is_said_with_the_remedy(counters, said):
    [note] = counters.notes(10.0)

    assert said in note
    assert "lower --budget" in note
