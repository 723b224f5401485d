"""Ten turns in ten families' chat formats: what was fed is what the whole history is rendered to at once."""

import json
import sys
from pathlib import Path

import pytest
from talking_models import saying

sys.path += [str(Path(__file__).parents[1] / room) for room in ("../scripts", "text")]
import chat_formats
import tokenizer_files
from make_synthetic import llama_config, llama_tensors, write_checkpoint

from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.packing.packer import pack
from uringinfer.text.chat import ChatTemplate
from uringinfer.text.formats import find_renderer
from uringinfer.text.rendering import ChatRequest

ENDS = {
    "Llama 3": "<|eot_id|>",
    "gpt-oss": "<|return|>",
    "GLM-4.5": "<|user|>",
    "DeepSeek V3": "<｜end▁of▁sentence｜>",
    "Kimi K3": "<|end_of_msg|>",
}
"""What ends a reply, where it is not <|im_end|>."""
REPLIES = {
    "Qwen3": "<think>\nhm {0}\n</think>\n\nAnswer {0}: 東京.",
    "GLM-4.5": "\n<think>hm {0}</think>\nAnswer {0}: 東京.",
    "gpt-oss": "<|channel|>analysis<|message|>hm {0}<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Answer {0}: 東京.",
    "Kimi K3": "hm {0}<|close|>think<|sep|><|open|>response<|sep|>Answer {0}: 東京."
    "<|close|>response<|sep|><|close|>message<|sep|>",
}
"""What a model writes, where it is more than its answer."""
FAMILIES = [*chat_formats.FORMATS, "Kimi K3"]


SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How the tokenizers of most of these families cut text: line breaks stay together whatever follows. (Where
they do not, as in GPT-2's way, the break behind a prompt is another token once the reply stands there.)"""


@pytest.fixture(scope="module")
def document():
    document = chat_formats.add_markers(tokenizer_files.byte_level())
    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, levels]}
    return document


@pytest.fixture(scope="module")
def engine(document, tmp_path_factory):
    directory = tmp_path_factory.mktemp("formats")
    config = llama_config(layers=1, hidden=32, intermediate=32, heads=1, kv_heads=1, vocab=600)
    write_checkpoint(directory / "checkpoint", config, llama_tensors(config), seed=3)
    numbers = {entry["content"]: entry["id"] for entry in document["added_tokens"]}
    tokenizer_files.write(
        directory / "checkpoint",
        document,
        tokenizer_config={"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"},
        generation_config={"eos_token_id": [numbers[end] for end in ENDS.values()]},
    )
    pack(directory / "checkpoint", directory / "m.uring")
    with open_model(directory / "m.uring").load(LoadOptions(context=4096, chunk=64)) as engine:
        yield engine


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, engine, tmp_path_factory):
    tokenizer, source = engine.prompter.tokenizer, chat_formats.FORMATS.get(request.param)
    engine.prompter.template = (
        find_renderer(tmp_path_factory.mktemp("none"), tokenizer)
        if source is None
        else ChatTemplate(source, tokenizer)
    )
    return request.param


@pytest.fixture(scope="module")
def ten_turns(engine, family):
    return talk(engine, family, 10)


def question(number):
    return f"  Question {number}: wie groß ist <|im_end|> 東京?\n"


def talk(engine, family, turns):
    """The conversation, and the generation of each of its turns."""
    tokenizer, conversation, generations = engine.prompter.tokenizer, engine.conversation(), []
    for number in range(turns):
        reply = REPLIES.get(family, "Answer {0}: 東京.").format(number) + ENDS.get(family, "<|im_end|>")
        ids = tokenizer.encode(reply, allow_control=True, add_bos=False)
        generation = conversation.say(question(number), mask=saying(ids), max_tokens=len(ids))
        assert generation.tokens == ids
        generations.append(generation)
    return conversation, generations


def test_ten_turns_are_the_whole_history_rendered_at_once(engine, family, ten_turns):
    conversation, generations = ten_turns
    for number, generation in enumerate(generations):
        history = conversation.messages[: 2 * number + 1]
        assert history[-1] == {"role": "user", "content": question(number)}
        assert generation.prompt_ids == engine.prompter.template.encode(ChatRequest(history))
        assert generation.text == f"Answer {number}: 東京."
        assert generation.reasoning == (f"hm {number}" if family in REPLIES else "")
    fed = conversation.session.fed
    assert fed[: len(generation.prompt_ids)] == generation.prompt_ids


def test_a_turn_feeds_no_more_than_its_reply_and_what_was_said(ten_turns):
    _, generations = ten_turns
    fed = [generation.stats.prompt.tokens for generation in generations]
    assert max(fed[2:]) - min(fed[2:]) <= 1  # a digit may make a token with its neighbours
    whole = len(generations[9].prompt_ids)
    assert fed[9] < whole / 5


@pytest.mark.slow
@pytest.mark.parametrize("name", chat_formats.FORMATS)
def test_ids_are_those_of_the_package_transformers(engine, document, name):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = engine.prompter.tokenizer
    engine.prompter.template = ChatTemplate(chat_formats.FORMATS[name], tokenizer)
    conversation, _ = talk(engine, name, 10)
    package = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(document)),
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
    )
    # a user's control token is text here and would be markup there
    history = json.loads(json.dumps(conversation.messages[:-1]).replace("<|im_end|>", "|im_end|"))
    for message in history:
        if "reasoning_content" in message:
            message["thinking"] = message["reasoning_content"]
    expected = package.apply_chat_template(
        history,
        chat_template=chat_formats.FORMATS[name],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    assert engine.prompter.template.encode(ChatRequest(history)) == expected
