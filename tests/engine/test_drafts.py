"""Guessed tokens change time alone; how many are guessed follows from what they cost and bring."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from tiny_models import Containers, write_tiny_checkpoint

from uringinfer.engine.batch import Batch
from uringinfer.engine.draft_model import DraftModel, load_with_draft
from uringinfer.engine.drafts import Drafting, LookUp, Pace
from uringinfer.engine.generation import GenerationOptions, Listener
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.engine.turn import Turn
from uringinfer.errors import BudgetError, UsageError
from uringinfer.text.sampling import Sampler, SamplingOptions

PROMPT = [5, 9, 2, 77, 5, 9, 2]
SETTINGS = [
    {"temperature": 0.0},
    {"temperature": 0.9, "seed": 4},
    {"temperature": 1.2, "seed": 8, "top_p": 0.9, "repeat_penalty": 1.3, "repeat_window": 12},
]


class Foretelling:
    """Guesses the tokens of a turn that is known already, every `wrong`th of them wrongly."""

    name = "a test"

    def __init__(self, fed, tokens, wrong):
        self._text = [*fed, *tokens]
        self._wrong = itertools.cycle([False] * (wrong - 1) + [True])

    def guess(self, fed, token, most, sampler):
        coming = self._text[len(fed) + 1 : len(fed) + 1 + most]
        return [(guess + 1) % 500 if next(self._wrong) else guess for guess in coming]


class Always(Pace):
    """As many guesses as there may be."""

    def guesses(self, most):
        return most


def always(drafter, most=5):
    drafting = Drafting(drafter, most)
    drafting._pace = Always()
    return drafting


def run(engine, options, drafting=None, rows=None):
    session = engine.session()
    listener = Listener(logits=None if rows is None else lambda part: rows.append(part.copy()))
    turn = Turn(session, engine.prompter.tokenizer, options, listener, lambda: None, drafting)
    sampler = Sampler(options.sampling)
    turn.run(PROMPT, sampler)
    return turn, sampler


def left_behind(turn, sampler):
    """All that goes on from here: tokens, text, state, the sampler's place."""
    session = turn.session
    state = {name: array.tobytes() for name, array in session._state.arrays().items()}
    logits = session.last_logits.tobytes()
    return turn.tokens, turn.pieces, session.fed, session.chosen, state, logits, sampler.draws


@pytest.fixture(scope="module")
def engine(native):
    with native.load(LoadOptions(context=96, chunk=16, parallel=2, all_logits=True)) as engine:
        yield engine


@pytest.mark.parametrize("wrong", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_turn_with_guesses_leaves_what_it_leaves_without_bit_for_bit(engine, settings, wrong):
    options = GenerationOptions(max_tokens=30, sampling=SamplingOptions(**settings), ignore_eos=True)
    rows, rows_with = [], []
    plain = run(engine, options, rows=rows)
    drafting = always(Foretelling(PROMPT, plain[0].tokens, wrong))
    with_guesses = run(engine, options, drafting, rows_with)
    assert left_behind(*with_guesses) == left_behind(*plain)
    assert np.concatenate(rows_with).tobytes() == np.concatenate(rows).tobytes()
    statistics = drafting.statistics
    assert statistics.guessed > 0 and (statistics.accepted > 0) == (wrong > 1)


@pytest.mark.parametrize("length", [3, 4, 9])
def test_an_end_among_accepted_guesses_takes_back_those_behind_it(engine, length):
    sampling = SamplingOptions(temperature=0.9, seed=4)
    coming = run(engine, GenerationOptions(max_tokens=30, sampling=sampling, ignore_eos=True))[0].tokens
    end = coming[length - 1]

    def force(logits):  # the model's end token, where the turn drew another one
        seen.append(1)
        if len(seen) == length:
            logits[-1, engine_end] = 1e4

    engine_end = next(iter(engine.prompter.tokenizer.eos_ids))
    options = GenerationOptions(max_tokens=30, sampling=sampling)
    results = []
    for drafting in (None, always(Foretelling(PROMPT, [*coming[: length - 1], engine_end, end], 1000))):
        seen = []
        session = engine.session()
        turn = Turn(
            session, engine.prompter.tokenizer, options, Listener(logits=force), lambda: None, drafting
        )
        sampler = Sampler(sampling)
        turn.run(PROMPT, sampler)
        assert turn.finish_reason == "stop" and len(turn.tokens) == length
        results.append(left_behind(turn, sampler)[:5])  # the logits were tampered with
    assert results[0] == results[1]


def test_guesses_end_where_the_context_does(native):
    with native.load(LoadOptions(context=16, chunk=16)) as engine:
        options = GenerationOptions(max_tokens=90, ignore_eos=True)
        plain = run(engine, options)
        with_guesses = run(engine, options, always(Foretelling(PROMPT, plain[0].tokens, 1000)))
    assert with_guesses[0].notes == plain[0].notes == ["the context of 16 tokens is full"]
    assert left_behind(*with_guesses) == left_behind(*plain)


def test_turns_with_guesses_share_passes(engine):
    options = GenerationOptions(
        max_tokens=25, sampling=SamplingOptions(temperature=0.9, seed=4), ignore_eos=True
    )
    plain = run(engine, options)
    batch, riders = Batch(2, 16), []
    for wrong in (3, 1000):
        drafting = always(Foretelling(PROMPT, plain[0].tokens, wrong))
        session = engine.session()
        turn = Turn(session, engine.prompter.tokenizer, options, Listener(), lambda: None, drafting)
        riders.append(batch.join(turn, PROMPT, Sampler(options.sampling)))
    before = engine.trunk.statistics().passes
    while batch.riders:
        batch.run_pass()
    assert engine.trunk.statistics().passes - before < 20
    for rider in riders:
        assert left_behind(rider.turn, rider.sampler) == left_behind(*plain)


def test_look_up_guesses_what_came_behind_the_longest_match_last():
    guesses = LookUp()
    fed = [1, 2, 3, 4, 9, 2, 3, 5, 8, 1, 2]
    assert guesses.guess(fed, 3, 4, None) == [4, 9, 2, 3]  # 1 2 3, not the later 2 3
    assert guesses.guess([*fed, 3], 4, 2, None) == [9, 2]
    assert guesses.guess([7, 7, 7], 6, 4, None) == []  # another text


def test_look_up_finds_a_text_that_repeats_itself():
    guesses, text = LookUp(), [1, 2, 1, 2]
    assert guesses.guess(text[:-1], text[-1], 9, None) == [1, 2]


def play(pace, passes, base, each, rate, seed=0):
    """Seconds that decoding `passes` passes' tokens takes, with and without guesses."""
    rng = np.random.default_rng(seed)
    spent = tokens = 0.0
    for _ in range(passes):
        count = pace.guesses(15)
        right = next((n for n in range(count) if rng.random() >= rate), count)
        seconds = base + count * each
        pace.took(count, right, seconds)
        spent += seconds
        tokens += 1 + right
    return spent, tokens * base


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("each", [0.01, 0.2, 1.0, 3.0])
def test_guesses_that_fail_cost_less_than_three_percent(each, rate):
    for seed in range(5):
        with_guesses, without = play(Pace(), 2000, 1.0, each, rate, seed)
        assert with_guesses <= 1.03 * without


def test_guesses_that_succeed_and_cost_little_are_made_in_numbers():
    with_guesses, without = play(Pace(), 500, 1.0, 0.02, 0.9)
    assert without / with_guesses > 4


def test_guesses_are_taken_up_again_when_they_begin_to_succeed():
    pace = Pace()
    play(pace, 2000, 1.0, 0.05, 0.0)
    with_guesses, without = play(pace, 2000, 1.0, 0.05, 0.9)
    assert without / with_guesses > 2.5


@pytest.fixture(scope="module")
def other_model(tmp_path_factory):
    """A model of the same vocabulary and other weights."""
    directory = tmp_path_factory.mktemp("other")
    checkpoint = write_tiny_checkpoint(directory / "checkpoint", layers=1, hidden=64, intermediate=96)
    return open_model(Containers(checkpoint, directory)())


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_draft_model_changes_no_token(native, other_model, settings):
    options = GenerationOptions(max_tokens=25, sampling=SamplingOptions(**settings), ignore_eos=True)
    load = LoadOptions(context=64, chunk=16, trunk_budget=1)
    with native.load(load) as engine:
        expected = [engine.generate(prompt, options).tokens for prompt in (PROMPT, PROMPT[:3])]
    for draft in (native, other_model):
        with load_with_draft(native, draft, load) as engine:
            engine._drafter = DraftModel(engine._draft)
            for prompt, tokens in zip((PROMPT, PROMPT[:3]), expected, strict=True):
                drafting = always(engine._drafter)
                session = engine.session()
                turn = Turn(session, None, options, Listener(), lambda: None, drafting)
                turn.run(prompt, Sampler(options.sampling))
                assert turn.tokens == tokens
                if draft is native:  # it draws what the model draws
                    assert drafting.statistics.accepted == drafting.statistics.guessed > 10


def test_a_draft_model_of_another_vocabulary_is_refused_by_name(native, tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint", tokenizer=False, vocab=500)
    draft = open_model(Containers(checkpoint, tmp_path)())
    with pytest.raises(UsageError, match=r"32768.uring cannot draft for .*: it has 500 tokens, not 600"):
        load_with_draft(native, draft, LoadOptions(context=64))


def test_a_budget_without_room_for_the_draft_model_is_refused_and_nothing_stays_open(native, other_model):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(BudgetError):
        load_with_draft(native, other_model, LoadOptions(context=64, budget=1 << 20))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
