"""Messages to the token ids of a prompt, by the chat template of the checkpoint.

The template's own markup may become control tokens, the messages' text never does (`chat_guard`). Ids are
those of rendering the template plainly and encoding the result, whenever no message holds the text of
a control token.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from uringinfer.errors import IntegrityError, UsageError
from uringinfer.text.chat_guard import ChatGuard, free_character
from uringinfer.text.marked_replies import MarkedReplyParser
from uringinfer.text.rendering import ChatRequest, Message, ReplyParser, Segment
from uringinfer.text.template import Meter, Template, TemplateError
from uringinfer.text.tokenizer import Tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Roles that a message may have. Templates put them between markup ("<|" + role + "|>"), so no other text
may stand there."""

_BASE_NBYTES = 32 << 20
_NBYTES_FOR_EACH = 200
"""What a rendering may make in all, at least and for each character of the request: templates copy texts a
dozen times over, and Python takes up to four bytes for a character."""
_REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")


class ChatTemplate:
    """One template for one tokenizer. `name` says where it comes from."""

    def __init__(self, source: str, tokenizer: Tokenizer, *, name: str = "chat template") -> None:
        self.name = name
        self.source = source
        self._tokenizer = tokenizer

    def check_syntax(self) -> None:
        """Raises IntegrityError if this is not a template. `render` does it too."""
        _ = self._template

    @functools.cached_property
    def _template(self) -> Template:
        hint = "give another with --chat-template"
        try:
            return Template(self.source)
        except jinja2.TemplateSyntaxError as error:
            reason = _line(error.message or "no template").rstrip(".")
            raise IntegrityError(f"{self.name}, line {error.lineno}: {reason}", hint=hint) from error
        except TemplateError as error:
            raise IntegrityError(f"{self.name} cannot be used: {error}", hint=hint) from error

    def encode(self, request: ChatRequest, add_generation_prompt: bool = True) -> list[int]:
        """Ids of the prompt; see `render`."""
        return self._tokenizer.encode_segments(self.render(request, add_generation_prompt))

    def render(self, request: ChatRequest, add_generation_prompt: bool = True) -> list[Segment]:
        """The prompt in segments: control tokens that the template wrote, and all the text between two.

        Raises UsageError for a message that is none, for values that JSON has not, and for what the template
        refuses.
        """
        normal = [_normal(message, place) for place, message in enumerate(request.messages, start=1)]
        tools = None if request.tools is None else list(request.tools)
        asked = {"tool_choice": request.tool_choice, "response_format": request.response_format}
        variables = {key: value for key, value in asked.items() if value is not None}
        variables |= dict(request.variables)
        guard = ChatGuard(
            self._tokenizer.control_tokens, free_character(normal, tools, variables, self.source)
        )
        given = {
            "documents": None,
            **self._tokenizer.special_texts,
            **guard.apply(variables),
            "messages": [_guarded(message, guard) for message in normal],
            "tools": guard.apply(tools),
            "add_generation_prompt": add_generation_prompt,
        }
        return self._tokenizer.split_markup(self._run(given, guard.character), guard.character)

    def reply_parser(self, prompt: Sequence[Segment]) -> ReplyParser:
        """A parser for the reply to `prompt`."""
        return MarkedReplyParser(self._tokenizer, prompt)

    def _run(self, given: dict[str, Any], guard: str) -> str:
        template = self._template
        meter = Meter(_BASE_NBYTES + _NBYTES_FOR_EACH * _characters(given))
        try:
            return template.render(given, meter)
        except TemplateError as error:
            raise UsageError(
                f"{self.name} refuses these messages: {_line(str(error).replace(guard, ''))}",
                hint="change the messages, or give another template with --chat-template",
            ) from error


def _line(text: str) -> str:
    """What a template says, as one line that leaves a terminal alone."""
    return "".join(character if character.isprintable() else " " for character in text).strip()


def _characters(value: Any) -> int:
    """How long all strings in `value` are together."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_characters(key) + _characters(entry) for key, entry in value.items())
    if isinstance(value, list):
        return sum(map(_characters, value))
    return 1


def _normal(message: Message, place: int) -> dict[str, Any]:
    """A message with its role checked, its reasoning under every name that templates use, and each call's
    arguments also parsed (`arguments_object`) where they are a JSON object."""
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        role = message.get("role") if isinstance(message, Mapping) else message
        raise UsageError(
            f"message {place} has the role {role!r}", hint=f"it must be one of {', '.join(ROLES)}"
        )
    message = dict(message)
    reasoning = next((message[name] for name in _REASONING_NAMES if message.get(name) is not None), None)
    if reasoning is not None:
        message = {**dict.fromkeys(_REASONING_NAMES, reasoning), **message}
    if isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = [_with_parsed_arguments(call) for call in message["tool_calls"]]
    return message


def _with_parsed_arguments(call: Any) -> Any:
    if not isinstance(call, Mapping):
        return call
    if "function" in call:
        return {**call, "function": _with_parsed_arguments(call["function"])}
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return dict(call)
    return {**call, "arguments_object": arguments} if isinstance(arguments, dict) else dict(call)


def _guarded(message: dict[str, Any], guard: ChatGuard) -> dict[str, Any]:
    """The message with guards; what an assistant said keeps the visible structure that the model wrote."""
    own_words = ("content", *_REASONING_NAMES) if message["role"] == "assistant" else ()
    guarded = {
        guard.apply(key): guard.apply(value, keep_visible=key in own_words) for key, value in message.items()
    }
    return {**guarded, "role": message["role"]}
