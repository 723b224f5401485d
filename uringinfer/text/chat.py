"""Messages to the token ids of a prompt, by the chat template of the checkpoint.

The template's own markup may become control tokens, the messages' text never does (`chat_guard`). Ids are
those of rendering the template plainly and encoding the result, whenever no message holds the text of
a control token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.text.chat_environment import make_environment
from uringinfer.text.chat_guard import ChatGuard, free_character
from uringinfer.text.files import read_utf8
from uringinfer.text.marked_replies import MarkedReplyParser
from uringinfer.text.rendering import ChatRequest, Message, ReplyParser, Segment
from uringinfer.text.settings import read_json
from uringinfer.text.tokenizer import Tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Roles that a message may have. Templates put them between markup ("<|" + role + "|>"), so no other text
may stand there."""

_REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")
_K3_TOKENS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")


class ChatTemplate:
    """One compiled template for one tokenizer. `name` says where it comes from."""

    def __init__(self, source: str, tokenizer: Tokenizer, *, name: str = "chat template") -> None:
        """Raises IntegrityError if `source` is not a template."""
        self.name = name
        self.source = source
        self._tokenizer = tokenizer
        try:
            self._template = make_environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise IntegrityError(
                f"{name}, line {error.lineno}: {(error.message or 'no template').rstrip('.')}",
                hint="give another with --chat-template",
            ) from error

    @classmethod
    def open(
        cls, directory: Path | str, tokenizer: Tokenizer, *, file: Path | str | None = None
    ) -> ChatTemplate:
        """The template in `file` if given, else that of the checkpoint or container in `directory`.

        Raises UsageError if there is none, or if `file` cannot be read or is no template: unlike the model's
        own, it is what was asked for that is wrong.
        """
        if file is not None:
            try:
                return cls(read_utf8(Path(file)), tokenizer, name=str(file))
            except FileNotFoundError as error:
                raise UsageError(f"cannot read the chat template {file}: {error.strerror}") from None
            except (EnvironmentError_, IntegrityError) as error:
                raise UsageError(error.message, hint=error.hint) from error
        found = find_template(Path(directory), tokenizer)
        if found is None:
            raise UsageError(
                f"{directory} has no chat template",
                hint="give the prompt as it is with --raw, or a template with --chat-template",
            )
        return cls(found[0], tokenizer, name=found[1])

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
        try:
            return self._template.render(given)
        except Exception as error:  # a template is foreign code and may raise anything
            reason = str(error).replace(guard, "") or type(error).__name__
            raise UsageError(
                f"{self.name} refuses these messages: {reason}",
                hint="change the messages, or give another template with --chat-template",
            ) from error


def find_template(directory: Path, tokenizer: Tokenizer) -> tuple[str, str] | None:
    """The source of the chat template in `directory` and where it comes from; None if there is none.

    chat_template.jinja, chat_template.json, then tokenizer_config.json (where a list names several, the one
    called "default"). A tokenizer with Kimi K3's markers gets this package's template for that format.
    """
    path = directory / "chat_template.jinja"
    if path.exists():
        return read_utf8(path), str(path)
    for name in ("chat_template.json", "tokenizer_config.json"):
        value = read_json(directory / name).get("chat_template")
        if isinstance(value, list):
            by_name = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
            value = by_name.get("default")
        if isinstance(value, str):
            return value, f"the chat template of {directory / name}"
    if all(tokenizer.id_of(content) is not None for content in _K3_TOKENS):
        source = resources.files("uringinfer.text") / "templates" / "kimi_k3.jinja"
        return source.read_text(encoding="utf-8"), "the built-in template for Kimi K3"
    return None


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
