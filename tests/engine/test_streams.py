"""A stream that is left early stops what runs within a segment and leaves nothing behind."""

import gc
import threading
import weakref

import pytest

from uringinfer.engine.loading import LoadOptions

PROMPT = list(range(3, 27))
GREEDY = {"max_tokens": 6, "ignore_eos": True}


@pytest.fixture(params=["everything pinned", "weights stream"])
def engine(request, medium, steady_memory):
    options = LoadOptions(budget="8G", context=64, chunk=8)
    if request.param == "weights stream":
        floor = medium.plan(options).floor
        options = LoadOptions(budget=floor + (1 << 20), context=64, chunk=8)
    with medium.load(options) as engine:
        yield engine


class ClosingTrunk:
    """Closes a stream from another thread when the `number`-th segment is asked for; counts those after."""

    def __init__(self, engine, monkeypatch, number):
        self.stream = None
        self.taken = 0
        self.after = 0
        self._number = number
        self._take = engine.trunk._take
        monkeypatch.setattr(engine.trunk, "_take", self.take)

    def take(self, segment):
        self.taken += 1
        if self.stream is not None and self.taken == self._number:
            thread = threading.Thread(target=self.stream.close)
            thread.start()
            thread.join()
        elif self.taken > self._number:
            self.after += 1
        return self._take(segment)


@pytest.mark.parametrize("phase", ["prompt", "decode"])
def test_closed_from_another_thread_the_pass_stops_within_a_segment(engine, monkeypatch, phase):
    expected = engine.generate(PROMPT, **GREEDY).tokens
    threads = threading.active_count()
    segments = len(engine.container.streamed_segments)
    passes = 1 if phase == "prompt" else 5  # three passes read the prompt
    trunk = ClosingTrunk(engine, monkeypatch, passes * segments + 3)
    trunk.stream = engine.stream(PROMPT, **GREEDY)
    pieces = list(trunk.stream)
    generation = trunk.stream.generation
    assert trunk.after == 0
    assert generation.finish_reason == "interrupted"
    assert generation.tokens == [token for piece in pieces for token in piece.ids]
    assert generation.tokens == ([] if phase == "prompt" else expected[: len(generation.tokens)])
    assert bool(generation.tokens) == (phase == "decode")
    assert threading.active_count() == threads
    trunk.stream = None
    assert engine.generate(PROMPT, **GREEDY).tokens == expected


def test_left_between_two_passes_it_is_over_and_its_state_is_given_back(engine):
    expected = engine.generate(PROMPT, **GREEDY).tokens
    threads = threading.active_count()
    session = engine.session()
    kept = weakref.ref(session)
    for piece in engine.stream(PROMPT, session=session, **GREEDY):
        first = piece.ids
        break
    del session
    gc.collect()
    assert kept() is None
    assert first == tuple(expected[:1])
    assert threading.active_count() == threads
    assert engine.generate(PROMPT, **GREEDY).tokens == expected


def test_an_exception_in_a_pass_ends_the_stream_and_not_the_engine(engine, monkeypatch):
    expected = engine.generate(PROMPT, **GREEDY).tokens
    with monkeypatch.context() as patch:
        take = engine.trunk._take

        def interrupted(segment):
            if segment > 2:
                raise KeyboardInterrupt
            return take(segment)

        patch.setattr(engine.trunk, "_take", interrupted)
        stream = engine.stream(PROMPT, **GREEDY)
        with pytest.raises(KeyboardInterrupt):
            next(stream)
    assert stream.generation.finish_reason == "interrupted"
    assert engine.generate(PROMPT, **GREEDY).tokens == expected


def test_two_streams_of_one_engine_take_turns(engine):
    alone = [engine.generate(prompt, **GREEDY).tokens for prompt in (PROMPT, PROMPT[::-1])]
    streams = [engine.stream(prompt, **GREEDY) for prompt in (PROMPT, PROMPT[::-1])]
    together = [[], []]
    for pieces in zip(*streams, strict=True):
        for tokens, piece in zip(together, pieces, strict=True):
            tokens += piece.ids
    assert together == alone
