"""The package's front door, used as the README uses it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_models import write_tiny_checkpoint

import uringinfer
import uringinfer.api
from uringinfer.errors import UsageError

GREEDY = {"max_tokens": 6, "ignore_eos": True}


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    directory = tmp_path_factory.mktemp("front")
    uringinfer.pack(write_tiny_checkpoint(directory / "checkpoint"), directory / "m.uring", segment="64K")
    return directory / "m.uring"


@pytest.fixture(scope="module")
def engine(container):
    with uringinfer.load(container, budget="8G", context=64, chunk=8) as engine:
        yield engine


def test_a_checkpoint_becomes_text_through_the_public_functions_alone(tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    container = tmp_path / "model.uring"
    uringinfer.pack(checkpoint, container)
    assert not uringinfer.verify(container).damaged
    assert uringinfer.plan(container, budget="8G").plan.budget == 8 << 30
    with uringinfer.load(container, budget="8G") as engine:
        assert len(engine.generate("Why is the sky blue?", max_tokens=3, ignore_eos=True).tokens) == 3


def test_every_public_name_is_there_and_listed():
    for name in uringinfer.__all__:
        assert getattr(uringinfer, name) is getattr(uringinfer.api, name)
    assert set(uringinfer.__all__) <= set(dir(uringinfer))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = uringinfer.nonsense


@pytest.mark.parametrize("module", ["uringinfer", "uringinfer.api"])
def test_what_type_checkers_see_is_what_is_there_at_run_time(module):
    loaded = importlib.import_module(module)
    tree = ast.parse(Path(loaded.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(seen) == set(loaded.__all__)
    for name, (home, original) in seen.items():
        assert getattr(loaded, name) is getattr(importlib.import_module(home), original)


def test_importing_the_package_imports_nothing_heavy():
    heavy = ("numpy", "jinja2", "click")
    code = f"import sys, uringinfer; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"bugdet": "8G"}, r"load has no option 'bugdet'; did you mean 'budget'\?"),
        ({"budget": "much"}, "'much' is not a size"),
        ({"budget": 1.5}, "budget is 1.5, which is no size"),
        ({"cache_budget": -1}, "cache_budget is -1, which is no size"),
        ({"chunk": "8"}, "chunk is '8'; give a whole number"),
        ({"threads": True}, "threads is True; give a whole number"),
        ({"io": "mmap"}, "io is 'mmap'; choose from auto, uring, preadv"),
        ({"cache_policy": "fifo"}, "cache_policy is 'fifo'; choose from"),
    ],
)
def test_options_of_load_that_cannot_be_are_refused_before_anything_is_opened(keywords, message):
    with pytest.raises(UsageError, match=message):
        uringinfer.load("/nowhere", **keywords)


def test_sizes_may_be_text_wherever_they_are_given():
    options = uringinfer.api.LoadOptions(budget="200M", cache_budget="1K")
    assert (options.budget, options.cache_budget) == (200 << 20, 1 << 10)


def test_a_plan_refuses_the_same(container):
    with pytest.raises(UsageError, match="'much' is not a size"):
        uringinfer.plan(container, budget="much")
    with pytest.raises(UsageError, match="plan has no option 'io'"):
        uringinfer.plan(container, io="auto")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"max_token": 3}, r"generate has no option 'max_token'; did you mean 'max_tokens'\?"),
        ({"zzz": 3}, "generate has no option 'zzz'; it has ignore_eos, logit_bias"),
        ({"max_tokens": "3"}, "max_tokens is '3'; give a whole number"),
        ({"temperature": "hot"}, "temperature is 'hot'; give a number"),
        ({"logprobs": -1}, "logprobs is -1; it must be 0 or more"),
        ({"stop": [3]}, r"stop is \(3,\); give a text"),
        ({"logit_bias": {600: 1.0}}, "token 600 is outside the vocabulary of 600"),
        ({"mask": lambda ids: []}, "the mask allows no token at all"),
        ({"mask": lambda ids: [-1]}, "the mask allows token -1"),
    ],
)
def test_options_of_generate_that_cannot_be_are_refused(engine, keywords, message):
    with pytest.raises(UsageError, match=message):
        engine.generate([1, 2, 3], **keywords)


@pytest.mark.parametrize("prompt", [[1.5, "x"], [None], {"role": "user"}])
def test_what_is_no_prompt_is_refused(engine, prompt):
    with pytest.raises(UsageError, match="cannot be fed"):
        engine.generate(prompt)


def test_a_prompt_is_text_or_messages_or_tokens(engine):
    messages = [{"role": "user", "content": "the dog"}]
    generations = [
        engine.generate("the dog", **GREEDY),
        engine.generate(messages, **GREEDY),
        engine.generate(uringinfer.tokenize(engine.container.path, messages), **GREEDY),
    ]
    assert len({tuple(generation.tokens) for generation in generations}) == 1
    assert generations[0].prompt_ids == generations[2].prompt_ids


def test_a_system_text_goes_in_front(engine):
    prompt = engine.generate("the dog", system="the fox", **GREEDY).prompt_ids
    assert engine.prompter.tokenizer.decode(prompt).startswith("<|im_start|>system\nthe fox<|im_end|>")


def test_raw_text_is_fed_as_it_is(engine):
    prompt = engine.generate("the dog", raw=True, **GREEDY).prompt_ids
    assert prompt == engine.tokenize("the dog") == uringinfer.tokenize(engine.container.path, "the dog")


def test_a_chat_turn_behind_tokens_is_for_conversations(engine):
    session = engine.session()
    session.feed([1, 2, 3])
    with pytest.raises(UsageError, match=r"needs their messages; use Engine\.conversation"):
        engine.generate("the dog", session=session)
    assert engine.generate("the dog", session=session, raw=True, **GREEDY).tokens


def test_one_stop_text_is_not_taken_apart_into_letters(engine):
    whole = engine.generate([1, 2, 3], **GREEDY).text
    assert len(whole) > 2
    stopped = engine.generate([1, 2, 3], stop=whole[1:], **GREEDY)
    assert (stopped.text, stopped.finish_reason) == (whole[0], "stop")


def test_the_text_of_a_special_token_stops_although_it_is_not_shown(engine):
    end = engine.prompter.tokenizer.id_of("<|im_end|>")
    generation = engine.generate(
        [1, 2, 3], mask=lambda ids: [40, end], logit_bias={end: 1e4}, stop="<|im_end|>", ignore_eos=True
    )
    assert (generation.tokens, generation.finish_reason) == ([end], "stop")


def test_pieces_of_a_stream_are_the_generation(engine):
    whole = engine.generate([1, 2, 3], logprobs=2, **GREEDY)
    stream = engine.stream([1, 2, 3], logprobs=2, **GREEDY)
    pieces = list(stream)
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [token for piece in pieces for token in piece.ids] == whole.tokens
    assert [logprobs for piece in pieces for logprobs in piece.logprobs] == whole.logprobs
    assert stream.generation.tokens == whole.tokens


def test_a_streams_generation_is_there_once_it_is_over(engine):
    stream = engine.stream([1, 2, 3], **GREEDY)
    with pytest.raises(UsageError, match="the stream is not over"):
        _ = stream.generation


def test_logprobs_are_those_of_the_logits_before_bias_and_temperature(engine):
    logits = engine.logits([1, 2, 3])[-1].astype(np.float64)
    expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    likeliest = np.argsort(-expected, kind="stable")[:3]
    generation = engine.generate([1, 2, 3], max_tokens=1, logprobs=3, logit_bias={7: 1e4}, temperature=0.5)
    [token] = generation.logprobs
    assert token.id == 7 and token.logprob == pytest.approx(expected[7])
    assert [number for number, _ in token.top] == likeliest.tolist()
    assert [value for _, value in token.top] == pytest.approx(expected[likeliest].tolist())


def test_a_mask_is_asked_with_the_reply_so_far_and_what_it_allows_is_chosen(engine):
    asked = []

    def mask(ids):
        asked.append(tuple(ids))
        return [10 + len(ids)] if len(ids) % 2 else np.arange(600) == 10 + len(ids)

    generation = engine.generate([1, 2, 3], max_tokens=4, mask=mask, temperature=1.0, ignore_eos=True)
    assert generation.tokens == [10, 11, 12, 13]
    assert asked == [(), (10,), (10, 11), (10, 11, 12)]


def test_logits_are_those_of_every_position(engine):
    ids = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    logits = engine.logits(ids)
    assert logits.shape == (10, 600)
    expected = engine.session().feed(ids[:5])[-1]
    # BLAS may round otherwise where the number of tokens is another
    tolerance = 0 if engine.kernels.name == "native" else 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(logits[4], expected, rtol=0, atol=tolerance)


def test_an_object_and_keywords_at_once_are_refused(engine):
    with pytest.raises(UsageError, match="options were given twice"):
        engine.generate([1], uringinfer.api.GenerationOptions(), max_tokens=3)


def test_a_trace_is_simulated_and_a_container_described(container, tmp_path):
    lines = ['{"tok": 0, "layers": [[1, 2], [3]]}', '{"tok": 1, "layers": [[1, 4], [3]]}']
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    assert uringinfer.simulate(tmp_path / "t.jsonl", "lru", slots=9).hits == 2
    by_size = uringinfer.simulate(tmp_path / "t.jsonl", capacity="18K", record_bytes="2K")
    assert by_size.slots == 9
    assert uringinfer.info(container).family == "llama"
    assert [finding for finding in uringinfer.doctor() if finding.message]
    with pytest.raises(UsageError, match="the cache has no size"):
        uringinfer.simulate(tmp_path / "t.jsonl")
