"""Messages of a request in the shapes that published chat templates expect.

Templates disagree on two things: under which name reasoning stands, and whether a call's arguments are a JSON
text (as OpenAI's API has them) or an object (as transformers' documentation has them).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from uringinfer.errors import UsageError
from uringinfer.text.rendering import Message

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Roles that a message may have. Templates put them between markup ("<|" + role + "|>"), so no other text
may stand there."""
REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")
_TELLS_TEXT_FROM_OBJECT = re.compile(r"\barguments\s+is\s+(?:not\s+)?(?:string|mapping)")


def normal_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages with their roles checked, and reasoning under every name that templates use.

    Raises UsageError for what is no message, or has another role.
    """
    return [_normal(message, place) for place, message in enumerate(messages, start=1)]


def check_only_text(messages: Sequence[Message]) -> None:
    """Raises UsageError for a message with a picture or a sound: what a model would be fed is their place."""
    for place, message in enumerate(messages, start=1):
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list | tuple) else ():
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind not in (None, "text"):
                raise UsageError(
                    f"message {place} holds a part of type {kind!r}; only text can be fed",
                    hint="leave it out, or describe it in words",
                )


def forms_of(messages: list[dict[str, Any]], source: str) -> list[list[dict[str, Any]]]:
    """The messages with calls' arguments as they are, as objects and as texts, the most likely form first.

    A template whose `source` tells the two apart gets them as they are: the text is the model's own wording.
    """
    if not any(message.get("tool_calls") for message in messages):
        return [messages]
    objects = [_with_arguments(message, _as_object) for message in messages]
    texts = [_with_arguments(message, _as_text) for message in messages]
    if _TELLS_TEXT_FROM_OBJECT.search(source):
        return [messages, objects, texts]
    return [objects, messages, texts]


def _normal(message: Message, place: int) -> dict[str, Any]:
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        role = message.get("role") if isinstance(message, Mapping) else message
        raise UsageError(
            f"message {place} has the role {role!r}", hint=f"it must be one of {', '.join(ROLES)}"
        )
    reasoning = next((message[name] for name in REASONING_NAMES if message.get(name) is not None), None)
    if reasoning is None:
        return dict(message)
    return {**dict.fromkeys(REASONING_NAMES, reasoning), **message}


def _with_arguments(message: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list | tuple):
        return message
    return {**message, "tool_calls": [_changed(call, change) for call in calls]}


def _changed(call: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(call, Mapping):
        return call
    if "function" in call:
        return {**call, "function": _changed(call["function"], change)}
    return {**call, "arguments": change(call["arguments"])} if "arguments" in call else dict(call)


def _as_object(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _as_text(arguments: Any) -> Any:
    if not isinstance(arguments, Mapping):
        return arguments
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return arguments
