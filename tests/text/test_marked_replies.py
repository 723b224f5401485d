"""Replies in the formats of templates, read by marker tokens into reasoning, answer and calls."""

import json

import pytest

from tests.text import chat_formats, tokenizer_files
from uringinfer.text.chat import ChatTemplate
from uringinfer.text.marked_replies import MarkedReplyParser
from uringinfer.text.rendering import ChatRequest, Segment
from uringinfer.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Knows the markers of all formats but gpt-oss's channels."""
    names = [name for name in chat_formats.SPECIAL if name not in ("<|channel|>", "<|message|>")]
    document = chat_formats.add_markers(tokenizer_files.byte_level(), (*names, *chat_formats.VISIBLE))
    directory = tmp_path_factory.mktemp("marked")
    return Tokenizer.open(
        tokenizer_files.write(directory, document, tokenizer_config={"eos_token": "<|im_end|>"})
    )


@pytest.fixture(scope="module")
def with_channels(tmp_path_factory):
    document = chat_formats.add_markers(tokenizer_files.byte_level())
    directory = tmp_path_factory.mktemp("channels")
    return Tokenizer.open(
        tokenizer_files.write(directory, document, generation_config={"eos_token_id": ends(document)})
    )


def ends(document):
    return [
        entry["id"] for entry in document["added_tokens"] if entry["content"] in ("<|return|>", "<|call|>")
    ]


def read(tokenizer, written, *, prompt=(), count=None):
    """The parser behind the first `count` tokens of a reply, and its events' texts by kind."""
    parser = MarkedReplyParser(tokenizer, prompt)
    ids = tokenizer.encode(written, allow_control=True, add_bos=False)
    events = [event for token_id in ids[:count] for event in parser.feed(token_id)] + parser.finish()
    return parser, {
        kind: "".join(e.text for e in events if e.kind == kind) for kind in ("reasoning", "answer")
    }


def calls(parser):
    return [(call.name, json.loads(call.arguments)) for call in parser.calls]


THOUGHT = "<think>\nLet me see.\n\nOk.\n</think>\n\nIt is 東京 🙂.<|im_end|>"


def test_reasoning_and_answer_are_told_apart_without_the_line_breaks_between(tokenizer):
    parser, texts = read(tokenizer, THOUGHT)
    assert (parser.reasoning, parser.answer) == ("Let me see.\n\nOk.", "It is 東京 🙂.")
    assert texts == {"reasoning": parser.reasoning, "answer": parser.answer}
    assert parser.finished
    assert parser.message() == {
        "role": "assistant",
        "content": "It is 東京 🙂.",
        "reasoning_content": "Let me see.\n\nOk.",
    }


def test_a_reply_may_be_cut_behind_every_token(tokenizer):
    whole, _ = read(tokenizer, THOUGHT)
    for count in range(len(tokenizer.encode(THOUGHT, allow_control=True))):
        parser, texts = read(tokenizer, THOUGHT, count=count)
        assert texts == {"reasoning": parser.reasoning, "answer": parser.answer}
        assert whole.reasoning.startswith(parser.reasoning.rstrip("�"))
        assert whole.answer.startswith(parser.answer.rstrip("�"))
        assert not parser.finished


def test_a_prompt_that_opened_the_reasoning_is_heeded(tokenizer):
    opened = [Segment("<|im_start|>", True), Segment("assistant\n", False), Segment("<think>", True)]
    for prompt in (opened, [*opened, Segment("\n", False)]):
        parser, _ = read(tokenizer, "hm\n</think>\nyes", prompt=prompt)
        assert (parser.reasoning, parser.answer) == ("hm", "yes")
    closed = [*opened, Segment("\n\n", False), Segment("</think>", True), Segment("\n\n", False)]
    assert read(tokenizer, "yes", prompt=closed)[0].answer == "yes"


def test_markers_that_the_model_spells_in_characters_are_text(tokenizer):
    spelled = tokenizer.encode("say </think> now")
    parser = MarkedReplyParser(tokenizer, [Segment("<think>", True)])
    for token_id in spelled:
        parser.feed(token_id)
    parser.finish()
    assert parser.reasoning == "say </think> now"


def test_a_plain_answer_is_given_as_it_is(tokenizer):
    parser, texts = read(tokenizer, "\n\n a \n b\n")
    assert parser.answer == texts["answer"] == "\n\n a \n b\n"


def test_nothing_counts_behind_the_end(tokenizer):
    parser, _ = read(tokenizer, "a<|im_end|>b")
    assert parser.answer == "a"


CALL = {"city": "Zürich", "n": [1, None]}
WRITTEN = {
    "Qwen": '<tool_call>\n{"name": "f", "arguments": ' + json.dumps(CALL) + "}\n</tool_call>",
    "GLM-4.5": "<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>Zürich</arg_value>\n<arg_key>n</arg_key>\n"
    "<arg_value>[1, null]</arg_value>\n</tool_call>",
    "Kimi K2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    + json.dumps(CALL)
    + "<|tool_call_end|><|tool_calls_section_end|>",
    "DeepSeek V3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
    + json.dumps(CALL)
    + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "DeepSeek V3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"
    + json.dumps(CALL)
    + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "Mistral, a list": '[TOOL_CALLS][{"name": "f", "arguments": ' + json.dumps(CALL) + "}]",
    "Mistral, by name": "[TOOL_CALLS]f[ARGS]" + json.dumps(CALL),
}


@pytest.mark.parametrize("family", WRITTEN)
def test_a_call_is_read_as_its_family_writes_it(tokenizer, family):
    parser, texts = read(tokenizer, f"I look.{WRITTEN[family]}<|im_end|>")
    assert calls(parser) == [("f", CALL)]
    assert texts["answer"] == parser.answer == "I look."
    assert parser.message()["tool_calls"][0]["function"]["name"] == "f"


@pytest.mark.parametrize("family", WRITTEN)
def test_a_call_may_be_cut_behind_every_token(tokenizer, family):
    for count in range(len(tokenizer.encode(WRITTEN[family], allow_control=True))):
        parser, texts = read(tokenizer, WRITTEN[family], count=count)
        assert texts["answer"] == parser.answer == ""
        assert all(call.name for call in parser.calls)


def test_an_id_that_the_format_gives_a_call_is_kept_for_its_result(tokenizer):
    parser, _ = read(tokenizer, WRITTEN["Kimi K2"])
    assert parser.message()["tool_calls"][0]["id"] == "functions.f:0"
    parser, _ = read(tokenizer, WRITTEN["Qwen"])
    assert parser.message()["tool_calls"][0]["id"] == "call_1"


def test_two_calls_are_numbered(tokenizer):
    parser, _ = read(tokenizer, WRITTEN["Qwen"] + "\n" + WRITTEN["Qwen"])
    assert [call.index for call in parser.calls] == [1, 2]
    assert parser.answer == ""


def test_what_is_no_call_is_none(tokenizer):
    for written in ('<tool_call>{"nme": "f"}</tool_call>', "<tool_call>{broken</tool_call>", "<tool_call>"):
        assert read(tokenizer, written)[0].calls == []


def test_channels_are_reasoning_answer_and_calls(with_channels):
    written = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
    )
    prompt = ChatTemplate(chat_formats.GPT_OSS, with_channels).render(
        ChatRequest([{"role": "user", "content": "?"}])
    )
    parser, texts = read(with_channels, written, prompt=prompt)
    assert (parser.reasoning, parser.answer, parser.finished) == ("hm", "Yes.", True)
    assert texts == {"reasoning": "hm", "answer": "Yes."}
    written = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        '<|constrain|>json<|message|>{"city": "x"}<|call|>'
    )
    parser, _ = read(with_channels, written, prompt=prompt)
    assert calls(parser) == [("f", {"city": "x"})]
    assert (parser.reasoning, parser.answer, parser.finished) == ("hm", "", True)
