import dataclasses
import json

import numpy as np
import pytest

from uringinfer.engine.generation import GenerationOptions, Listener
from uringinfer.engine.loading import LoadOptions
from uringinfer.errors import UsageError
from uringinfer.text.sampling import SamplingOptions

GREEDY = GenerationOptions(max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def engine(tiny):
    with tiny.load(LoadOptions(context=64, chunk=8, all_logits=True)) as engine:
        yield engine


def test_each_token_is_the_likeliest_after_those_before_it(engine):
    generation = engine.generate([1, 2, 3], GREEDY)
    ids = [*generation.prompt_ids, *generation.tokens]
    logits = engine.session().feed(ids, all_logits=True)
    assert generation.tokens == logits[2:-1].argmax(axis=1).tolist()
    assert generation.finish_reason == "length"


def test_the_text_is_that_of_the_tokens_and_came_in_pieces(engine):
    pieces = []
    generation = engine.generate([1, 2, 3], GREEDY, Listener(text=pieces.append))
    tokenizer = engine.prompter.tokenizer
    known = [token for token in generation.tokens if token < tokenizer.vocab_size]
    assert generation.text == "".join(pieces) == tokenizer.decode(known, show_special=False)
    assert len(pieces) > 1


def test_one_seed_gives_one_answer_and_the_seed_is_told(engine):
    def run(seed):
        sampling = SamplingOptions(temperature=1.0, seed=seed)
        return engine.generate([1, 2, 3], dataclasses.replace(GREEDY, sampling=sampling))

    first = run(None)
    assert run(first.seed).tokens == first.tokens
    assert run(first.seed + 1).tokens != first.tokens


def test_logits_come_for_every_position_fed(engine):
    rows = []
    generation = engine.generate(list(range(20)), GREEDY, Listener(logits=rows.append))
    logits = np.concatenate(rows)
    assert logits.shape == (20 + 12 - 1, 600)
    assert logits[19:].argmax(axis=1).tolist() == generation.tokens


def test_no_tokens_only_reads_the_prompt(engine):
    rows = []
    options = GenerationOptions(max_tokens=0)
    generation = engine.generate([1, 2, 3], options, Listener(logits=rows.append))
    assert (generation.tokens, generation.text, generation.finish_reason) == ([], "", "length")
    assert generation.stats.first_token_seconds is None
    assert len(np.concatenate(rows)) == 3


def test_an_end_token_stops_and_stands_last_without_text(engine):
    free = engine.generate([1, 2, 3], GREEDY)
    end = next(iter(engine.prompter.tokenizer.eos_ids))

    seen = []
    # logits are handed to the listener before a token is picked: it can play a model that wants to end
    stopped = engine.generate(
        [1, 2, 3], GenerationOptions(max_tokens=12), Listener(logits=lambda rows: force(rows, end, seen))
    )
    assert stopped.tokens == [*free.tokens[:3], end]
    assert stopped.finish_reason == "stop"


def force(rows, token, seen):
    """Makes `token` the likeliest at the fourth call."""
    if len(seen) == 3:
        rows[-1, token] = rows.max() + 1
    seen.append(1)


def test_a_stop_string_ends_the_text_before_it(engine):
    free = engine.generate([1, 2, 3], GREEDY)
    stop = free.text[4:7]
    stopped = engine.generate([1, 2, 3], dataclasses.replace(GREEDY, stop=[stop]))
    assert stopped.text == free.text[: free.text.index(stop)]
    assert stopped.finish_reason == "stop"


def test_a_full_context_ends_the_turn_with_a_note(engine):
    options = dataclasses.replace(GREEDY, max_tokens=100)
    generation = engine.generate(list(range(60)), options)
    assert len(generation.tokens) == 64 - 60 + 1
    assert generation.finish_reason == "length"
    assert generation.notes[-1] == "the context of 64 tokens is full"


def test_an_interrupt_while_generating_keeps_the_text(engine):
    pieces = []

    def stop_at_third(text):
        pieces.append(text)
        if len(pieces) == 3:
            engine.interrupt()

    free = engine.generate([1, 2, 3], GREEDY)
    generation = engine.generate([1, 2, 3], GREEDY, Listener(text=stop_at_third))
    assert generation.finish_reason == "interrupted"
    assert generation.text == "".join(pieces)
    assert free.tokens[: len(generation.tokens)] == generation.tokens
    assert engine.generate([1, 2, 3], GREEDY).tokens == free.tokens


def test_an_interrupt_is_heard_while_the_prompt_is_read(engine):
    steps = []

    def stop_at_second(done, total):
        steps.append((done, total))
        if len(steps) == 2:
            engine.interrupt()

    generation = engine.generate(list(range(40)), GREEDY, Listener(prompt=stop_at_second))
    assert steps == [(8, 40), (16, 40)]
    assert (generation.tokens, generation.finish_reason) == ([], "interrupted")
    assert generation.stats.prompt.tokens == 16
    assert generation.stats.first_token_seconds is None


def test_a_session_goes_on_with_the_conversation(engine):
    session = engine.session()
    first = engine.generate([1, 2, 3], GREEDY, session=session)
    assert session.length == 3 + 12 - 1
    again = engine.generate([9, 10], GREEDY, session=session)  # the token chosen last is fed first
    whole = engine.generate([1, 2, 3, *first.tokens, 9, 10], GREEDY)
    assert again.tokens == whole.tokens


def test_a_prompt_is_a_turn_in_the_chat_format_unless_it_is_raw(engine):
    tokenizer = engine.prompter.tokenizer
    assert tokenizer.decode(engine.encode("hello")) == (
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.decode(engine.encode("hello", raw=True)) == "hello"


def test_control_tokens_in_a_prompt_are_plain_text(engine):
    end = engine.prompter.tokenizer.id_of("<|im_end|>")
    assert engine.encode("<|im_end|>").count(end) == 1
    assert end not in engine.encode("<|im_end|>", raw=True)


def test_an_empty_prompt_is_refused(engine):
    with pytest.raises(UsageError, match="no token to feed"):
        engine.generate([], GREEDY)


def test_statistics_count_passes_tokens_and_bytes(tiny):
    sizes = [segment.nbytes for segment in tiny.container.streamed_segments]
    with tiny.load(LoadOptions(context=64, chunk=8, trunk_budget=sum(sizes) // 2)) as engine:
        generation = engine.generate(list(range(20)), GREEDY)
        streamed = engine.plan.trunk.streamed_bytes
    stats = generation.stats
    assert (stats.prompt.tokens, stats.prompt.passes) == (20, 3)
    assert (stats.decode.tokens, stats.decode.passes) == (11, 11)
    assert stats.decode.streamed_bytes == 11 * streamed > 0
    assert stats.decode.hit_rate == pytest.approx(1 - streamed / sum(sizes))
    assert 0 < stats.first_token_seconds <= stats.prompt.seconds + stats.decode.seconds
    assert stats.bytes_written in (0, None)
    assert json.loads(json.dumps(generation.to_json()))["stats"]["decode"]["tokens"] == 11
