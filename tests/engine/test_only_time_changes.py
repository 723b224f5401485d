"""The first law: budget, reader, placement, segments, chunk and threads change no bit of the logits."""

import numpy as np
import pytest
from greedy_logits import greedy_logits, load_for_logits

from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model

PROMPT = [(7 * n) % 600 for n in range(70)]
STEPS = 6
CONTEXT = 128


def logits_of(opened, **options):
    """Logits of every position of the prompt and of some greedy steps, float32 [70 + 6, vocab], as bytes."""
    with load_for_logits(opened, context=CONTEXT, **options) as engine:
        logits = greedy_logits(engine, PROMPT, STEPS)
        assert engine.trunk.statistics().streamed_bytes > 0 or not engine.plan.trunk.streamed_bytes
    return logits.tobytes()


def budget_at(opened, share, **options):
    """The process' budget at this share of the way from the floor to everything."""
    plan = opened.plan(LoadOptions(context=CONTEXT, all_logits=True, budget=1 << 40, **options))
    return plan.floor + round(share * (plan.everything - plan.floor))


def trunk_at(opened, share):
    """A budget of the trunk at this share of the way from one slot to all segments."""
    sizes = [segment.nbytes for segment in opened.container.streamed_segments]
    return max(sizes) + round(share * (sum(sizes) - max(sizes)))


@pytest.fixture(scope="module")
def native_reference(native):
    return logits_of(native, chunk=64, io="preadv")


@pytest.fixture(scope="module")
def numpy_reference(with_numpy):
    return logits_of(with_numpy, chunk=16, io="preadv")


@pytest.mark.parametrize(
    ("io", "placement"), [("uring", "spread"), ("uring", "prefix"), ("preadv", "spread")]
)
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_native_logits_are_the_same_at_every_budget(native, native_reference, share, placement, io):
    got = logits_of(native, chunk=64, trunk_budget=trunk_at(native, share), placement=placement, io=io)
    assert got == native_reference


def test_native_logits_are_the_same_at_every_budget_of_the_process(native, medium, steady_memory):
    results = set()
    for share in (0.02, 0.25, 0.5, 0.9, 1.1):
        results.add(logits_of(medium, chunk=64, budget=budget_at(medium, share, chunk=64)))
    assert len(results) == 1


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("segment", [8192, 65536, "layer"])
def test_native_logits_are_the_same_for_every_segment_size_and_chunk(
    packed, native, native_reference, segment, chunk
):
    opened = open_model(packed(segment))
    assert logits_of(opened, chunk=chunk, trunk_budget=trunk_at(opened, 0.5)) == native_reference


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_native_logits_are_the_same_for_every_number_of_threads(packed, native, native_reference, threads):
    opened = open_model(packed(), threads=threads)
    assert opened.kernels.threads == threads
    assert logits_of(opened, chunk=7, trunk_budget=trunk_at(opened, 0.5)) == native_reference


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_native_logits_are_the_same_for_every_number_of_slots(native, native_reference, slots):
    got = logits_of(native, chunk=64, ring_slots=slots, trunk_budget=trunk_at(native, 0.4))
    assert got == native_reference


@pytest.mark.parametrize("io", ["uring", "preadv"])
@pytest.mark.parametrize(
    ("share", "placement"), [(0.0, "spread"), (0.5, "spread"), (0.5, "prefix"), (1.0, "spread")]
)
def test_numpy_logits_are_the_same_at_every_budget(with_numpy, numpy_reference, share, placement, io):
    got = logits_of(
        with_numpy, chunk=16, trunk_budget=trunk_at(with_numpy, share), placement=placement, io=io
    )
    assert got == numpy_reference


def test_numpy_and_native_logits_agree(native, native_reference, numpy_reference):
    one, other = (np.frombuffer(data, np.float32) for data in (native_reference, numpy_reference))
    assert np.abs(one - other).max() <= 1e-4 * np.abs(other).max()
