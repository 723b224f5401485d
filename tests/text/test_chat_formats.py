"""Ten families' chat formats: rendered as Jinja renders them, and safe from what users type."""

import json
import random

import pytest
import tokenizers

from tests.text import chat_formats, jinja_oracle, tokenizer_files
from uringinfer.errors import UsageError
from uringinfer.text.chat import ChatTemplate
from uringinfer.text.formats import find_renderer
from uringinfer.text.kimi_k3_replies import KimiK3ReplyParser
from uringinfer.text.marked_replies import MarkedReplyParser
from uringinfer.text.openai_request import read_request
from uringinfer.text.rendering import ChatRequest, Segment, text_of
from uringinfer.text.tokenizer import Tokenizer

FAMILIES = [*chat_formats.FORMATS, "Kimi K3"]
SYSTEM = {"role": "system", "content": " Be brief.\n"}


def said(count):
    """A conversation of `count` turns, with reasoning in the assistant's."""
    turns = []
    for number in range(count):
        turns.append({"role": "user", "content": f"  Question {number}: wie groß ist 東京?\n"})
        turns.append({"role": "assistant", "content": f"Answer {number}.", "reasoning_content": "hm\nhm"})
    return turns


@pytest.fixture(scope="module")
def document():
    return chat_formats.add_markers(tokenizer_files.byte_level())


@pytest.fixture(scope="module")
def tokenizer(document, tmp_path_factory):
    directory = tokenizer_files.write(
        tmp_path_factory.mktemp("formats"),
        document,
        tokenizer_config={"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"},
    )
    return Tokenizer.open(directory)


@pytest.fixture(params=FAMILIES)
def renderer(request, tokenizer, tmp_path):
    source = chat_formats.FORMATS.get(request.param)
    return find_renderer(tmp_path, tokenizer) if source is None else ChatTemplate(source, tokenizer)


@pytest.mark.parametrize("name", chat_formats.FORMATS)
@pytest.mark.parametrize("asks", [True, False])
def test_ids_are_those_of_jinja_and_the_package_tokenizers(tokenizer, document, name, asks):
    source = chat_formats.FORMATS[name]
    package = tokenizers.Tokenizer.from_str(json.dumps(document))
    oracle = jinja_oracle.make_environment().from_string(source)
    for messages in (said(1)[:1], [SYSTEM, *said(3)], [SYSTEM, *said(3)[:-1]]):
        # reasoning stands under every name that templates use
        named = [
            {**message, "thinking": message["reasoning_content"]}
            if "reasoning_content" in message
            else message
            for message in messages
        ]
        expected = oracle.render(
            messages=named, add_generation_prompt=asks, bos_token="<|endoftext|>", eos_token="<|im_end|>"
        )
        request = ChatRequest(messages)
        template = ChatTemplate(source, tokenizer)
        assert text_of(template.render(request, asks)) == expected
        assert template.encode(request, asks) == package.encode(expected, add_special_tokens=False).ids


def test_control_tokens_that_a_user_types_arrive_as_text(renderer, tokenizer):
    control = {token.id for token in tokenizer.control_tokens}
    typed = [token.content for token in tokenizer.control_tokens]

    def markers(content):
        ids = renderer.encode(ChatRequest([*said(2), {"role": "user", "content": content}]))
        assert content in tokenizer.decode(ids)
        return [token_id for token_id in ids if token_id in control]

    honest = markers("word")
    assert all(markers(f"a{marker}b") == honest for marker in typed)
    assert markers("".join(typed)) == honest


def test_control_tokens_in_results_names_and_arguments_arrive_as_text(renderer, tokenizer):
    control = {token.id for token in tokenizer.control_tokens}

    def markers(typed):
        call = {"id": "c1", "function": {"name": "f", "arguments": json.dumps({typed: [typed]})}}
        messages = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": typed, "tool_call_id": "c1"},
        ]
        ids = renderer.encode(ChatRequest(messages))
        return [token_id for token_id in ids if token_id in control]

    try:
        honest = markers("word")
    except UsageError:
        pytest.skip("this format knows no tools")
    assert markers("<|im_end|></tool_call><|end|>") == honest


def test_arguments_are_given_in_the_form_that_a_template_takes(tokenizer):
    call = {"id": "c1", "function": {"name": "f", "arguments": '{"a":1}'}}
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    texts = {
        name: text_of(ChatTemplate(chat_formats.FORMATS[name], tokenizer).render(ChatRequest(messages)))
        for name in ("Qwen2.5", "DeepSeek V3")
    }
    assert '"arguments": {"a": 1}' in texts["Qwen2.5"]
    assert '```json\n{"a":1}\n```' in texts["DeepSeek V3"]


def test_kimi_linears_format_is_known_where_the_template_is_missing(tmp_path):
    names = [name for name in chat_formats.SPECIAL if name not in ("<|open|>", "<|close|>", "<|sep|>")]
    document = chat_formats.add_markers(tokenizer_files.byte_level(), tuple(names))
    tokenizer = Tokenizer.open(tokenizer_files.write(tmp_path, document))
    renderer = find_renderer(tmp_path, tokenizer)
    assert renderer.name == "the built-in format for Kimi K2 and Kimi-Linear"
    call = {"id": "functions.f:0", "function": {"name": "f", "arguments": '{"a":1}'}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_call_id": "functions.f:0"},
    ]
    assert text_of(renderer.render(ChatRequest(messages))) == (
        "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>"
        "<|im_user|>user<|im_middle|>Hi<|im_end|><|im_assistant|>assistant<|im_middle|>"
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        '{"a":1}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
        "<|im_system|>tool<|im_middle|>## Return of functions.f:0\n3<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>"
    )
    assert tokenizer.id_of("<|im_end|>") in tokenizer.eos_ids


WORDS = [
    "a",
    "",
    "<|im_end|>",
    '{"a":1}',
    "[1]",
    "auto",
    "low",
    "\ud800",
    "json_object",
    None,
    True,
    False,
    0,
]
WORDS += [-1, 2.5, 10**30, float("nan"), float("inf")]
KEYS = ["role", "content", "type", "text", "name", "id", "function", "arguments", "tool_calls", "image"]


def anything(draw, depth=0):
    kind = draw.randrange(4) if depth < 4 else 3
    if kind == 0:
        return [anything(draw, depth + 1) for _ in range(draw.randrange(3))]
    if kind == 1:
        return {draw.choice(KEYS): anything(draw, depth + 1) for _ in range(draw.randrange(4))}
    return draw.choice(WORDS)


def some_message(draw):
    role = draw.choice(["system", "developer", "user", "assistant", "tool"])
    message = {"role": role, "content": draw.choice(["hi", anything(draw)])}
    if draw.random() < 0.4:
        call = {"id": anything(draw), "function": {"name": "f", "arguments": anything(draw)}}
        message["tool_calls"] = draw.choice([[call], anything(draw)])
    if draw.random() < 0.4:
        key = draw.choice(["name", "tool_call_id", "tools", "reasoning_content", "tool", "id"])
        message[key] = anything(draw)
    return message


def test_a_request_of_any_shape_is_rendered_or_refused_in_one_line(renderer, tokenizer):
    draw = random.Random(0)
    settings = ("tools", "tool_choice", "response_format", "thinking", "reasoning_effort", "images")
    for _ in range(150):
        body = {"messages": [some_message(draw) for _ in range(draw.randrange(4))]}
        body |= {key: anything(draw) for key in settings if draw.random() < 0.2}
        try:
            request, asks = read_request(body)
            segments = renderer.render(request, asks)
            tokenizer.encode_segments(segments)
        except UsageError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("thinking", [True, False])
def test_a_reply_of_any_tokens_is_read_and_adds_up(tokenizer, thinking):
    draw = random.Random(1)
    control = [token.id for token in tokenizer.control_tokens]
    texts = ['call tool="f"', 'argument key="a" type="number"', '{"name": "f"}', "think", "x", "\n", " "]
    words = [tokenizer.encode(text) for text in texts]
    for number in range(600):
        parser = (
            KimiK3ReplyParser(tokenizer, thinking=thinking)
            if number % 2
            else MarkedReplyParser(tokenizer, [Segment("<think>", True)] if thinking else [])
        )
        ids = []
        for _ in range(draw.randrange(30)):
            ids += [draw.choice(control)] if draw.random() < 0.4 else draw.choice(words)
        events = [event for token_id in ids for event in parser.feed(token_id)] + parser.finish()
        assert "".join(event.text for event in events if event.kind == "answer") == parser.answer
        assert "".join(event.text for event in events if event.kind == "reasoning") == parser.reasoning
        assert len(parser.message().get("tool_calls", ())) == len(parser.calls)
        assert all(call.name for call in parser.calls)
