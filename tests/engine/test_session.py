import numpy as np
import pytest

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


def test_a_session_that_was_interrupted_inside_a_pass_refuses_to_go_on(engine):
    session = engine.session()
    session.feed([1, 2])
    engine.interrupt()
    with pytest.raises(Interrupted):
        session.feed([3])
    engine.trunk.resume()
    with pytest.raises(UsageError, match="interrupted inside a pass"):
        session.feed([3])
    assert engine.session().feed([1]).shape == (1, 600)
