"""Conversations in one batch: each is what it is alone, and what befalls one touches no other."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uringinfer.engine.answers import BatchStatistics, Request, answer_all
from uringinfer.engine.batch import Batch, share_evenly
from uringinfer.engine.generation import GenerationOptions, Listener
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.turn import Turn
from uringinfer.errors import IntegrityError, UsageError
from uringinfer.text.sampling import Sampler, SamplingOptions

PROMPTS = [[1 + n % 7 + 3 * k for n in range(length)] for k, length in enumerate((30, 2, 11, 47, 5))]
LENGTHS = (4, 20, 9, 6, 13)


def options(length, temperature=0.9):
    sampling = SamplingOptions(temperature=temperature, seed=length)
    return GenerationOptions(max_tokens=length, sampling=sampling, ignore_eos=True)


@pytest.fixture(scope="module")
def engine(native):
    with native.load(LoadOptions(context=96, chunk=16, parallel=5, all_logits=True)) as engine:
        yield engine


def alone(engine, prompt, length, rows=None):
    listener = Listener(logits=None if rows is None else lambda part: rows.append(part.copy()))
    return engine.generate(prompt, options(length), listener)


def join(engine, batch, prompt, length, rows=None):
    listener = Listener(logits=None if rows is None else lambda part: rows.append(part.copy()))
    turn = Turn(engine.session(), engine.prompter.tokenizer, options(length), listener, lambda: None)
    return batch.join(turn, prompt, Sampler(options(length).sampling))


def test_logits_and_tokens_of_each_are_those_it_has_alone_bit_for_bit(engine):
    expected = []
    for prompt, length in zip(PROMPTS, LENGTHS, strict=True):
        rows = []
        expected.append((alone(engine, prompt, length, rows).tokens, np.concatenate(rows).tobytes()))

    batch, riders, rows = Batch(5, 16), [], [[] for _ in PROMPTS]
    passes = itertools.count()
    while len(riders) < len(PROMPTS) or batch.riders:
        number = next(passes)
        if number % 2 == 0 and len(riders) < len(PROMPTS):  # they join while others decode
            k = len(riders)
            riders.append(join(engine, batch, PROMPTS[k], LENGTHS[k], rows[k]))
        batch.run_pass()

    got = [(r.turn.tokens, np.concatenate(part).tobytes()) for r, part in zip(riders, rows, strict=True)]
    assert got == expected


def test_a_pass_carries_a_token_of_each_that_decodes_and_shares_the_rest_among_prompts(engine):
    batch = Batch(5, 16)
    first = join(engine, batch, PROMPTS[1], 20)
    batch.run_pass()
    others = [join(engine, batch, PROMPTS[k], 4) for k in (0, 3)]
    batch.run_pass()
    assert first.turn.session.length == len(PROMPTS[1]) + 1
    assert sorted(rider.turn.session.length for rider in others) == [7, 8]


def test_a_turn_whose_own_listener_fails_ends_alone(engine):
    def fail(_):
        raise IntegrityError("no")

    batch = Batch(2, 16)
    good = join(engine, batch, PROMPTS[1], 6)
    turn = Turn(engine.session(), None, options(6), Listener(logits=fail), lambda: None)
    bad = batch.join(turn, PROMPTS[2], Sampler(options(6).sampling))
    while batch.riders:
        batch.run_pass()
    assert isinstance(bad.error, IntegrityError) and bad.is_over
    assert good.error is None and good.turn.tokens == alone(engine, PROMPTS[1], 6).tokens


def test_one_that_leaves_makes_room_and_changes_no_other(engine):
    batch = Batch(2, 16)
    stays = join(engine, batch, PROMPTS[0], 8)
    leaves = join(engine, batch, PROMPTS[3], 8)
    batch.run_pass()
    with pytest.raises(UsageError, match="share passes already"):
        join(engine, batch, PROMPTS[1], 3)
    batch.leave(leaves)
    comes = join(engine, batch, PROMPTS[1], 3)
    while batch.riders:
        batch.run_pass()
    assert leaves.turn.finish_reason == "interrupted"
    assert stays.turn.tokens == alone(engine, PROMPTS[0], 8).tokens
    assert comes.turn.tokens == alone(engine, PROMPTS[1], 3).tokens


def test_a_pass_that_fails_is_taken_back_in_all_of_them(engine, monkeypatch):
    batch = Batch(2, 16)
    riders = [join(engine, batch, PROMPTS[k], 8) for k in (1, 4)]
    batch.run_pass()
    lengths = [rider.turn.session.length for rider in riders]
    with monkeypatch.context() as patched:
        patched.setattr(type(engine.trunk), "_take", _unreadable)
        with pytest.raises(IntegrityError):
            batch.run_pass()
    assert [rider.turn.session.length for rider in riders] == lengths
    assert all(rider.is_over and rider.turn.session.is_whole for rider in riders)


def _unreadable(*_):
    raise IntegrityError("cannot be read")


@pytest.mark.parametrize(
    ("prompt", "message"), [([], "no token"), ([10**6], "outside"), ([1] * 97, "do not fit")]
)
def test_a_prompt_that_cannot_be_fed_is_refused_when_it_joins(engine, prompt, message):
    batch = Batch(2, 16)
    with pytest.raises(UsageError, match=message):
        join(engine, batch, prompt, 4)
    assert batch.has_room and not batch.riders


def test_requests_are_answered_as_if_each_were_alone_and_a_bad_one_says_so(engine):
    requests = [Request(p, options(n)) for p, n in zip(PROMPTS, LENGTHS, strict=True)]
    requests.insert(2, Request([10**6], options(3)))
    requests = requests * 3  # more than run at a time
    statistics = BatchStatistics()
    answers = sorted(answer_all(engine, requests, statistics=statistics), key=lambda answer: answer.number)
    assert [answer.number for answer in answers] == list(range(18))
    for answer, request in zip(answers, requests, strict=True):
        if request.ids == [10**6]:
            assert answer.finish_reason == "error" and "outside" in answer.to_json()["error"]
        else:
            expected = alone(engine, request.ids, request.options.max_tokens)
            assert (answer.tokens, answer.text) == (expected.tokens, expected.text)
    assert statistics.generated_tokens == 3 * sum(LENGTHS)
    assert statistics.phase.passes < 3 * sum(LENGTHS)


def test_more_conversations_than_a_pass_has_tokens_for_are_refused():
    with pytest.raises(UsageError, match="5 conversations do not share passes of 4 tokens"):
        Batch(5, 4)


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 100))
def test_room_is_shared_evenly_and_wholly(wants, room):
    shares = share_evenly(wants, room)
    assert sum(shares) == min(room, sum(wants))
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    most = max(shares, default=0)
    assert all(share >= most - 1 for share, want in zip(shares, wants, strict=True) if share < want)
