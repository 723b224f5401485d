"""Reads the calls that a model wrote, in the ways of published chat templates.

The text begins with the marker that opened it (gpt-oss's: with the name on a line of its own). What cannot
be read is no call: a client must not be offered one without a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from uringinfer.text.rendering import ToolCall

_KIMI_K2 = re.compile(
    r"<\|tool_call_begin\|>(.*?)<\|tool_call_argument_begin\|>(.*?)(?:<\|tool_call_end\|>|\Z)", re.S
)
_DEEPSEEK = re.compile(r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)(?:<｜tool▁call▁end｜>|\Z)", re.S)
_GLM_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)(?:</arg_value>|\Z)", re.S)
_MISTRAL = re.compile(r"\[TOOL_CALLS\](.*?)\[ARGS\](.*?)(?=\[TOOL_CALLS\]|\Z)", re.S)
_FENCED = re.compile(r"```(?:json)?\n(.*?)(?:\n```|\Z)", re.S)


def read_calls(written: str, first: int) -> list[ToolCall]:
    """The calls in `written`, numbered from `first`."""
    found = [[part.strip() for part in call] for call in _calls(written)]
    named = [call for call in found if call[0]]
    return [
        ToolCall(name, index, arguments or "{}", "".join(identity))
        for index, (name, arguments, *identity) in enumerate(named, start=first)
    ]


def _calls(written: str) -> Iterator[tuple[str, ...]]:
    """Names, arguments and ids, as written; a format without ids gives none."""
    if "<|tool_call_begin|>" in written:
        for name, arguments in _KIMI_K2.findall(written):
            yield name.strip().removeprefix("functions.").rsplit(":", 1)[0], arguments, name
    elif "<｜tool▁call▁begin｜>" in written:
        for kind, rest in _DEEPSEEK.findall(written):
            if kind.strip() == "function":  # V3 and R1: the name, then a fenced block
                name, _, block = rest.partition("\n")
                fenced = _FENCED.search(block)
                yield name, fenced[1] if fenced else block
            else:
                yield kind, rest
    elif "[ARGS]" in written:
        for name, arguments in _MISTRAL.findall(written):
            name, _, identity = name.partition("[CALL_ID]")
            yield name, arguments, identity
    elif written.startswith(("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>")):
        text = re.sub(r"\A(?:<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>)", "", written)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            if "<arg_key>" in text or (written.startswith("<tool_call>") and "{" not in text):
                yield text.partition("<arg_key>")[0], _glm_arguments(text)
            return
        for call in value if isinstance(value, list) else [value]:
            if isinstance(call, dict) and isinstance(call.get("name"), str):
                yield call["name"], _json(call.get("arguments", call.get("parameters", {})))
    else:
        name, _, arguments = written.partition("\n")
        yield name, arguments


def _glm_arguments(text: str) -> str:
    arguments: dict[str, Any] = {}
    for key, value in _GLM_ARGUMENT.findall(text):
        try:
            arguments[key] = json.loads(value)
        except (ValueError, RecursionError):
            arguments[key] = value
    return _json(arguments)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
