from contextlib import contextmanager

import numpy as np
import pytest

from uringinfer.engine.generation import GenerationOptions, Listener
from uringinfer.engine.loading import LoadOptions
from uringinfer.errors import Interrupted, UsageError


@pytest.fixture(scope="module")
def engine(tiny):
    with tiny.load(LoadOptions(context=32, chunk=8, all_logits=True)) as engine:
        yield engine


def test_feeding_at_once_and_step_by_step_gives_the_same_logits(engine):
    ids = [5, 6, 7, 8]
    stepped, fed = engine.session(), engine.session()
    rows = np.stack([stepped.step(token) for token in ids])
    np.testing.assert_allclose(rows, fed.feed(ids, all_logits=True), rtol=1e-4, atol=1e-4)
    assert stepped.length == fed.length == 4


def test_feed_gives_the_last_position_unless_all_are_asked_for(engine):
    ids = list(range(20))
    every = engine.session().feed(ids, all_logits=True)
    last = engine.session().feed(ids)
    assert (every.shape, last.shape) == ((20, 600), (1, 600))
    np.testing.assert_allclose(every[-1:], last, rtol=1e-4, atol=1e-4)


def test_passes_give_one_array_for_each_chunk(engine):
    assert [len(logits) for logits in engine.session().passes(range(20), all_logits=True)] == [8, 8, 4]


def test_sessions_do_not_disturb_each_other(engine):
    alone = engine.session()
    expected = [alone.step(token) for token in (1, 2, 3)]
    one, other = engine.session(), engine.session()
    for token, want in zip((1, 2, 3), expected, strict=True):
        other.step(token + 100)
        np.testing.assert_array_equal(one.step(token), want)


def test_a_session_refuses_more_than_its_context(engine):
    session = engine.session(context=4)
    session.feed([1, 2, 3])
    with pytest.raises(UsageError, match="2 tokens after 3 do not fit into a context of 4"):
        session.feed([4, 5])
    assert session.length == 3
    session.feed([4])
    with pytest.raises(UsageError, match=r"^1 token after 4 does not fit into a context of 4"):
        session.feed([5])


@pytest.mark.parametrize("context", [0, 33])
def test_a_context_beyond_the_plan_is_refused(engine, context):
    with pytest.raises(UsageError, match=f"a context of {context} tokens was asked for and 32 are planned"):
        engine.session(context)


@pytest.mark.parametrize("wrong", [-1, 600])
def test_a_token_outside_of_the_vocabulary_is_refused_before_anything_is_fed(engine, wrong):
    session = engine.session()
    with pytest.raises(UsageError, match=f"token {wrong} is outside of the vocabulary of 600"):
        session.feed([1, wrong])
    assert session.length == 0


def test_nothing_to_feed_is_an_error(engine):
    with pytest.raises(UsageError, match="no token to feed"):
        engine.session().feed([])


class InterruptingTrunk:
    """A trunk whose engine is asked to stop at the `left`-th product of a pass."""

    def __init__(self, engine, left):
        self.engine, self.left = engine, left

    @contextmanager
    def begin(self):
        with self.engine.trunk.begin() as self.weights:
            yield self

    def matmul(self, *arguments, **options):
        self.left -= 1
        if self.left == 0:
            self.engine.interrupt()
        return self.weights.matmul(*arguments, **options)

    def __getattr__(self, name):
        return getattr(self.weights, name)


def test_a_pass_interrupted_at_any_product_is_taken_back_and_the_session_goes_on(engine, monkeypatch):
    undisturbed = engine.session()
    undisturbed.feed([1, 2, 3])
    expected = undisturbed.feed([4, 5])
    interrupted = 0
    for product in range(1, 100):
        session = engine.session()
        session.feed([1, 2, 3])
        with monkeypatch.context() as patch:
            patch.setattr(session, "_trunk", InterruptingTrunk(engine, product))
            try:
                session.feed([4, 5])
            except Interrupted:
                interrupted += 1
                assert (session.is_whole, session.length, session.fed) == (True, 3, [1, 2, 3])
            else:
                break
        engine.trunk.resume()
        assert session.feed([4, 5]).tobytes() == expected.tobytes()
    engine.trunk.resume()
    assert interrupted > 7  # a layer has seven matrices


def test_a_session_that_was_interrupted_can_be_saved_and_goes_on_as_if_it_had_not(engine, tmp_path):
    def stop_at_third_pass(logits):
        passes.append(logits)
        if len(passes) == 3:
            engine.interrupt()

    passes = []
    greedy = GenerationOptions(max_tokens=8, ignore_eos=True)
    whole = engine.generate([1, 2, 3], greedy).tokens
    session = engine.session()
    first = engine.generate([1, 2, 3], greedy, Listener(logits=stop_at_third_pass), session=session)
    assert (first.finish_reason, len(first.tokens)) == ("interrupted", 3)
    session.save(tmp_path / "s")
    rest = GenerationOptions(max_tokens=8 - len(first.tokens), ignore_eos=True)
    second = engine.generate([], rest, session=engine.load_session(tmp_path / "s"))
    assert first.tokens + second.tokens == whole
