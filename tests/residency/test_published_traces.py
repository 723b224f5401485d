"""Hit rates on two public traces, in %. The LRU and Belady columns were published with the traces."""

import lzma
from pathlib import Path

import pytest

from uringinfer.residency.simulate import simulate
from uringinfer.residency.trace import read_trace

DATA = Path(__file__).parent / "data"
LRU_AND_BELADY = [
    ("kimi-k3.trace.bin", 455, 36.24, 39.42),
    ("kimi-k3.trace.bin", 911, 36.24, 42.61),
    ("kimi-k3.trace.bin", 1823, 36.24, 48.99),
    ("kimi-k3.trace.bin", 3647, 36.24, 61.74),
    ("kimi-k3.trace.bin", 7294, 49.19, 84.59),
    ("kimi-k3.trace.bin", 10941, 90.00, 90.00),
    ("kimi-linear-300.trace.jsonl", 199, 0.00, 51.02),
    ("kimi-linear-300.trace.jsonl", 399, 41.30, 63.57),
    ("kimi-linear-300.trace.jsonl", 798, 57.02, 74.64),
    ("kimi-linear-300.trace.jsonl", 1597, 71.88, 84.41),
]
# decayed counts that are discounted by the distance to their layer's next turn: the best published, of
# which the default policy must not fall short; and what it reaches, so that a change shows
LFRU = [
    ("kimi-linear-300.trace.jsonl", 199, 32.3, 35.39),
    ("kimi-linear-300.trace.jsonl", 399, 44.3, 47.92),
    ("kimi-linear-300.trace.jsonl", 798, 58.8, 60.71),
    ("kimi-linear-300.trace.jsonl", 1597, 72.4, 73.54),
    ("kimi-k3.trace.bin", 911, 36.24, 42.29),
    ("kimi-k3.trace.bin", 3647, 36.24, 61.42),
]


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    loaded = {}
    for packed in DATA.glob("*.xz"):
        path = tmp_path_factory.mktemp("traces") / packed.stem
        path.write_bytes(lzma.decompress(packed.read_bytes()))
        loaded[packed.stem] = read_trace(path)
    return loaded


def percent(trace, policy, slots):
    return round(100 * simulate(trace, policy, slots).hit_rate, 2)


def test_the_traces_are_the_published_ones(traces):
    linear, k3 = traces["kimi-linear-300.trace.jsonl"], traces["kimi-k3.trace.bin"]

    assert (linear.requests, linear.distinct, linear.passes) == (62_400, 5_083, 300)
    assert (k3.requests, k3.distinct, k3.passes) == (100_096, 10_010, 8)
    assert (len(k3.layers), k3.num_experts) == (92, 896)


@pytest.mark.parametrize(("name", "slots", "lru", "belady"), LRU_AND_BELADY)
def test_lru_and_belady_hit_as_published(traces, name, slots, lru, belady):
    assert percent(traces[name], "lru", slots) == lru
    assert percent(traces[name], "belady", slots) == belady


@pytest.mark.parametrize(("name", "slots", "bar", "reached"), LFRU)
def test_the_default_policy_hits_more_often_than_published_counts(traces, name, slots, bar, reached):
    rate = percent(traces[name], "lfru", slots)

    assert rate > bar
    assert rate == pytest.approx(reached, abs=0.05)
