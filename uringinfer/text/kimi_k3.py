"""Kimi K3's chat format ("XTML"): a request to the segments of its prompt.

The release has no template: a program builds a list of segments and the tokenizer encodes each alone. A tag
is `<|open|>name key="value"<|sep|>` and `<|close|>name<|sep|>`; only the four markers and images are markup,
so nothing that a request holds can become structure. Content is written verbatim: no trimming, no escaping.
`kimi_k3_replies` reads what the model answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from uringinfer.errors import UsageError
from uringinfer.text.kimi_k3_replies import CLOSE, END, OPEN, SEPARATOR, KimiK3ReplyParser
from uringinfer.text.kimi_k3_results import name_of_call, with_results_in_order
from uringinfer.text.rendering import ChatRequest, Message, Segment
from uringinfer.text.tokenizer import Tokenizer

EFFORTS = ("low", "high", "max")
NO_EFFORTS = ("none", "minimal", "off")
"""Efforts that mean not to think."""

_IMAGE_PLACE = "<|kimi_image_placeholder|>"
_TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{}\n```"
_MORE_TOOLS = (
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n"
    "```json\n{}\n```"
)
_EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response "
    "channel), supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={}`."
)
_CHOICE = "The system is invoked with `tool_choice={}`.\nYou {} in the next message."
_CHOICES = {
    "required": _CHOICE.format("required", "MUST call tools"),
    "none": _CHOICE.format("none", "MUST NOT call any tools"),
}
_RAW_JSON = (
    "The system is invoked with `response_format={}`.\nYour response must be raw JSON data without markdown "
    "code blocks (```json) or any additional formatting."
)
_SCHEMA = "\nThe JSON data must match the following schema:\n```json\n{}\n```"


_VARIABLES = ("thinking", "enable_thinking", "thinking_effort", "reasoning_effort", "images")


class KimiK3Renderer:
    """The format for one tokenizer that has its markers.

    Variables: `thinking` (or `enable_thinking`), true unless said otherwise; `thinking_effort` (or
    `reasoning_effort`); `images`, width and height of each image in the order of their parts.
    """

    name = "the built-in format for Kimi K3"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def knows(self, variable: str) -> bool:
        """Whether a variable of this name has a meaning."""
        return variable in _VARIABLES

    def render(self, request: ChatRequest, add_generation_prompt: bool = True) -> list[Segment]:
        """The prompt. Raises UsageError for what the format cannot express."""
        thinking, effort = _thinking(request.variables)
        images = _Images(request.variables.get("images"))
        writer = _Writer(thinking, images)
        if request.tools:
            writer.setting("tool-declare", _TOOLS.format(_compact(list(request.tools))))
        if thinking and effort is not None:
            writer.setting("thinking-effort", _EFFORT.format(effort))
        for message in with_results_in_order([_checked(m, n) for n, m in enumerate(request.messages, 1)]):
            writer.message(message)
        if isinstance(request.tool_choice, str) and request.tool_choice in _CHOICES:
            writer.setting("tool-choice", _CHOICES[request.tool_choice])
        response_format = _response_format(request.response_format)
        if response_format is not None:
            writer.setting("response-format", response_format)
        if add_generation_prompt:
            writer.open("message", role="assistant")
            writer.open("think" if thinking else "response")
        images.check_all_used()
        return writer.segments

    def encode(self, request: ChatRequest, add_generation_prompt: bool = True) -> list[int]:
        """Ids of the prompt; see `render`."""
        return self._tokenizer.encode_segments(self.render(request, add_generation_prompt))

    def turn_ends(self) -> frozenset[int]:
        """The end of a message, and two tokens that have no place in a reply."""
        ids = map(self._tokenizer.id_of, (END, "[EOS]", "[EOT]"))
        return frozenset(token_id for token_id in ids if token_id is not None)

    def reply_parser(self, prompt: Sequence[Segment]) -> KimiK3ReplyParser:
        """A parser for the reply to `prompt`, which opened the reasoning or the answer."""
        opened = [segment.text for segment in prompt[-2:-1]]
        return KimiK3ReplyParser(self._tokenizer, thinking=opened != ["response"])


class _Images:
    """The sizes of a request's images, taken one by one; None renders a placeholder for each."""

    def __init__(self, sizes: Any) -> None:
        pairs = sizes if isinstance(sizes, list | tuple) else []
        if sizes is not None and (pairs is not sizes or not all(map(_is_size, pairs))):
            raise UsageError("images are no list of sizes", hint="give [width, height] in pixels for each")
        self._sizes = None if sizes is None else list(pairs)
        self._used = 0

    def next(self) -> str:
        self._used += 1
        if self._sizes is None:
            return _IMAGE_PLACE
        if self._used > len(self._sizes):
            raise UsageError(
                f"the messages hold more images than the {len(self._sizes)} given",
                hint="give one size for each image part",
            )
        width, height = self._sizes[self._used - 1]
        return f"<|media_begin|>image {width}x{height}<|media_content|><|media_pad|><|media_end|>"

    def check_all_used(self) -> None:
        if self._sizes is not None and self._used != len(self._sizes):
            raise UsageError(
                f"{len(self._sizes)} images were given for {self._used} image parts",
                hint="give one size for each image part",
            )


def _is_size(size: Any) -> bool:
    return isinstance(size, list | tuple) and len(size) == 2 and all(type(n) is int and n > 0 for n in size)


class _Writer:
    """Builds the segments of one prompt, message by message."""

    def __init__(self, thinking: bool, images: _Images) -> None:
        self.segments: list[Segment] = []
        self._thinking = thinking
        self._images = images
        self._calls: list[Mapping[str, Any]] = []
        """Those of the last assistant message."""
        self._results = 0
        """Tool messages since the last assistant message."""

    def open(self, tag: str, /, **attributes: str) -> None:
        self._markup(OPEN)
        self._text(tag)
        for key, value in attributes.items():
            escaped = value.replace("&", "&amp;").replace('"', "&quot;")
            for piece in (f" {key}", '="', escaped, '"'):
                self._text(piece)
        self._markup(SEPARATOR)

    def close(self, tag: str) -> None:
        self._markup(CLOSE)
        self._text(tag)
        self._markup(SEPARATOR)

    def setting(self, kind: str, body: str) -> None:
        self.open("message", role="system", type=kind)
        self._text(body)
        self._end_message()

    def message(self, message: Message) -> None:
        role = message["role"]
        name = message.get("name")
        named = {"name": name} if isinstance(name, str) and name else {}
        if role == "system" and message.get("tools"):
            self.setting("tool-declare", _MORE_TOOLS.format(_compact(message["tools"])))
        elif role == "assistant":
            self._assistant(message, named)
        elif role == "tool":
            self._results += 1
            tool = self._name_of_result(message)
            self.open("message", role="tool", tool=tool, index=str(self._results))
            self._content(message.get("content"))
            self._end_message()
        else:
            self.open("message", role=role, **named)
            self._content(message.get("content"))
            self._end_message()

    def _assistant(self, message: Message, named: dict[str, str]) -> None:
        self._calls = list(message.get("tool_calls") or [])
        self._results = 0
        self.open("message", role="assistant", **named)
        if self._thinking:
            reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
            self.open("think")
            if not isinstance(reasoning, str):
                raise UsageError(f"a message's reasoning is {_kind(reasoning)}", hint="give text")
            self._text(reasoning if reasoning.strip() else "")
            self.close("think")
        self.open("response")
        self._content(message.get("content"))
        self.close("response")
        if self._calls:
            self.open("tools")
            for index, call in enumerate(self._calls, start=1):
                self._call(call, index)
            self.close("tools")
        self._end_message()

    def _call(self, call: Mapping[str, Any], index: int) -> None:
        self.open("call", tool=name_of_call(call), index=str(index))
        arguments = call.get("function", call).get("arguments")
        for tag, attributes, text in _arguments(arguments):
            self.open(tag, **attributes)
            self._text(text)
            self.close(tag)
        self.close("call")

    def _name_of_result(self, message: Message) -> str:
        name = message["tool"] if "tool" in message else message.get("name")
        if isinstance(name, str) and name:
            return name
        if self._results <= len(self._calls):
            return name_of_call(self._calls[self._results - 1])
        raise UsageError(
            f"a tool message has no name, and the assistant's last message has {len(self._calls)} calls",
            hint="give its tool_call_id or its name",
        )

    def _content(self, content: Any) -> None:
        if content is None:
            return
        if isinstance(content, str):
            self._text(content)
            return
        if not isinstance(content, list | tuple):
            raise UsageError(f"a message's content is {_kind(content)}", hint="give text or a list of parts")
        for part in content:
            if not isinstance(part, Mapping):
                raise UsageError(f"a part of a message's content is {_kind(part)}", hint="give an object")
            if part.get("type") in ("image", "image_url"):
                self._markup(self._images.next())
            elif isinstance(part.get("text"), str):
                self._text(part["text"])
            else:
                raise UsageError(
                    f"a content part of type {part.get('type')!r} has no text", hint="give text or images"
                )

    def _end_message(self) -> None:
        self.close("message")
        self._markup(END)

    def _markup(self, text: str) -> None:
        self.segments.append(Segment(text, True))

    def _text(self, text: str) -> None:
        if text:
            self.segments.append(Segment(text, False))


def _checked(message: Message, place: int) -> dict[str, Any]:
    role = message.get("role") if isinstance(message, Mapping) else message
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise UsageError(
            f"message {place} has the role {role!r}",
            hint="it must be one of system, developer, user, assistant, tool",
        )
    return {**message, "role": "system" if role == "developer" else role}


def _thinking(variables: Mapping[str, Any]) -> tuple[bool, str | None]:
    """Whether to think, and how much, if that was said."""
    thinking = variables.get("thinking", variables.get("enable_thinking", True))
    effort = variables.get("thinking_effort", variables.get("reasoning_effort"))
    if thinking is False or effort in NO_EFFORTS:
        return False, None
    if effort is not None and effort not in EFFORTS:
        raise UsageError(
            f"this model has no thinking effort {effort!r}",
            hint=f"it must be one of {', '.join(EFFORTS)}, or {', '.join(NO_EFFORTS)} for none",
        )
    return True, effort


def _response_format(asked: Any) -> str | None:
    kind = asked.get("type") if isinstance(asked, Mapping) else asked
    if kind in (None, "text"):
        return None
    if kind not in ("json_object", "json_schema"):
        raise UsageError(
            f"a response format of type {kind!r} is not known",
            hint="it must be one of text, json_object, json_schema",
        )
    body = _RAW_JSON.format(kind)
    if kind == "json_object":
        return body
    schema = asked.get("json_schema") if isinstance(asked, Mapping) else None
    if isinstance(schema, Mapping):
        schema = schema.get("schema", schema.get("json_schema", schema))
    return body + _SCHEMA.format(_compact(schema))


def _arguments(arguments: Any) -> Iterator[tuple[str, dict[str, str], str]]:
    """The elements of a call: tag, attributes and text of each."""
    if isinstance(arguments, str):
        if not arguments.strip():
            return
        try:
            parsed = json.loads(arguments)
        except json.JSONDecodeError:
            yield "json", {"type": "object"}, arguments
            return
        except (ValueError, RecursionError) as error:
            raise UsageError(f"a call's arguments cannot be read ({error})", hint="give an object") from None
        arguments = parsed
    elif arguments is None:
        return
    if not isinstance(arguments, Mapping):
        raise UsageError(f"a call's arguments are {_kind(arguments)}", hint="give an object")
    for key, value in arguments.items():
        try:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"a call's argument cannot be written as JSON ({error})") from None
        yield "argument", {"key": str(key), "type": _kind(value)}, text


def _kind(value: Any) -> str:
    """The JSON type of `value`."""
    if value is None:
        return "null"
    kinds = ((str, "string"), (bool, "boolean"), (int | float, "number"), (Mapping, "object"))
    return next((name for types, name in kinds if isinstance(value, types)), "array")


def _compact(value: Any) -> str:
    """Sorted JSON without spaces, as tools and schemas are written."""
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"tools or a schema cannot be written as JSON ({error})") from None
