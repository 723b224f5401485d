"""What a benchmark counts and times, on a clock that only passes over the weights move."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from tiny_models import Containers, write_tiny_checkpoint

from uringinfer.bench.measure import Measurement, measure
from uringinfer.bench.workload import Workload
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.errors import UsageError
from uringinfer.residency.expert_statistics import ExpertStatistics

PASS_SECONDS, TOKEN_SECONDS, SESSION_SECONDS = 0.5, 0.125, 64.0


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bench")
    return open_model(Containers(write_tiny_checkpoint(directory / "checkpoint", layers=1), directory)())


@pytest.fixture
def engine(opened):
    with opened.load(LoadOptions(context=64, chunk=8)) as engine:
        yield engine


@pytest.fixture
def passes(engine, monkeypatch):
    """The tokens of every pass; each pass moves the clock, and so does, far more, making a session."""
    now, fed = [100.0], []
    kind = type(engine.model)
    forward, new_state = kind.forward, kind.new_state

    def timed_forward(model, weights, spans):
        tokens = sum(len(span.ids) for span in spans)
        now[0] += PASS_SECONDS + TOKEN_SECONDS * tokens
        fed.append(tokens)
        return forward(model, weights, spans)

    def slow_state(model, context):
        now[0] += SESSION_SECONDS
        return new_state(model, context)

    monkeypatch.setattr(kind, "forward", timed_forward)
    monkeypatch.setattr(kind, "new_state", slow_state)
    monkeypatch.setattr("uringinfer.report.phases.time.perf_counter", lambda: now[0])
    return fed, lambda: now[0]


def test_decoding_feeds_one_token_a_pass_behind_a_warm_up_of_one(engine, passes):
    fed, _ = passes
    phases = measure(engine, Workload("tg", 5), 3)
    assert fed == 16 * [1]
    assert [(phase.tokens, phase.passes) for phase in phases] == [(5, 5)] * 3


def test_a_prompt_is_fed_in_chunks_behind_a_warm_up_of_one_chunk(engine, passes):
    fed, _ = passes
    phases = measure(engine, Workload("pp", 20), 2)
    assert fed == [8, 8, 8, 4, 8, 8, 4]
    assert [(phase.tokens, phase.passes) for phase in phases] == [(20, 3)] * 2


def test_the_depth_is_fed_and_not_timed(engine, passes):
    fed, _ = passes
    phases = measure(engine, Workload("tg", 2, depth=10), 1)
    assert fed == [1, 8, 2, 1, 1]
    assert phases[0].tokens == 2
    assert phases[0].seconds == 2 * (PASS_SECONDS + TOKEN_SECONDS)


@pytest.mark.parametrize("workload", [Workload("pp", 20), Workload("tg", 6), Workload("tg", 6, depth=9)])
def test_the_rate_agrees_with_a_wall_clock_around_the_api(engine, passes, workload):
    _, clock = passes
    result = Measurement(workload, engine.setup, measure(engine, workload, 4), peak_rss=0)
    ids = workload.ids(engine.model.vocab_size)
    session = engine.session()
    if workload.depth:
        session.feed(ids[: workload.depth])
    began = clock()
    if workload.kind == "pp":
        session.feed(ids[workload.depth :])
    else:
        for token in ids[workload.depth :]:
            session.step(token)
    assert result.tokens_per_second == pytest.approx(workload.tokens / (clock() - began), rel=0.02)


def test_a_workload_that_does_not_fit_into_the_context_is_refused(engine):
    with pytest.raises(UsageError, match="do not fit into a context of 64"):
        measure(engine, Workload("pp", 65), 1)


def measurement(phase, *, tokens, seconds, setup):
    phases = tuple(replace(phase, seconds=each, tokens=tokens) for each in seconds)
    return Measurement(Workload("tg", tokens), setup, phases, peak_rss=1)


def test_mean_and_deviation_are_those_of_the_repetitions_rates(engine):
    phase = measure(engine, Workload("tg", 1), 1)[0]
    result = measurement(phase, tokens=8, seconds=(1.0, 2.0, 4.0), setup=engine.setup)
    assert result.rates == [8.0, 4.0, 2.0]
    assert result.tokens_per_second == pytest.approx(14 / 3)
    assert result.deviation == pytest.approx(3.0550504633)  # statistics of a pocket calculator: sample sd
    assert measurement(phase, tokens=8, seconds=(1.0,), setup=engine.setup).deviation == 0.0


def test_shares_and_bytes_are_those_of_all_repetitions_together(engine):
    phase = replace(
        measure(engine, Workload("tg", 1), 1)[0],
        wait_seconds=0.5,
        in_flight_seconds=0.8,
        pinned_bytes=600,
        streamed_bytes=200,
        embedding_bytes=40,
        system_seconds=0.25,
        experts=ExpertStatistics(hits=2, misses=1, prefetched=1, demanded_bytes=50, guessed_bytes=10),
    )
    setup = replace(engine.setup, cache_slots=4, cache_bytes=400, overlaps=True)
    result = measurement(phase, tokens=2, seconds=(1.0, 3.0), setup=setup)
    assert result.hit_rate == 0.75
    assert result.expert_hit_rate == 0.75
    assert result.bytes_per_token == (200 + 40 + 50 + 10) / 2
    assert result.used_bytes_per_token == (800 + 4 * 100) / 2
    assert result.wait_share == 0.25
    assert result.in_flight_share == 0.4
    assert result.cpu_seconds_per_gb == pytest.approx(0.5 / 600e-9)
    assert result.bound_by == "drive"
    assert replace(result, setup=replace(setup, overlaps=False)).bound_by == "one read at a time"
    calm = tuple(replace(p, wait_seconds=0.4) for p in result.phases)
    assert replace(result, phases=calm).bound_by == "memory or compute"


def test_conversations_of_a_batch_share_every_pass_and_count_together(opened, monkeypatch):
    fed = []
    kind = type(opened.model)
    forward = kind.forward

    def counted(model, weights, spans):
        fed.append([len(span.ids) for span in spans])
        return forward(model, weights, spans)

    monkeypatch.setattr(kind, "forward", counted)
    with opened.load(LoadOptions(context=64, chunk=8, parallel=3)) as engine:
        [decoded] = measure(engine, Workload("tg", 4), 1)
        [prompt] = measure(engine, Workload("pp", 5), 1)
    assert fed == [[1], *[[1, 1, 1]] * 4, [5], [2, 2, 2], [2, 2, 2], [1, 1, 1]]
    assert (decoded.tokens, decoded.passes) == (12, 4)
    assert (prompt.tokens, prompt.passes) == (15, 3)
