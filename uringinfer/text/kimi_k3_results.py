"""Which call each tool message of a Kimi K3 conversation answers.

The format has no ids of calls: results stand in the order of their calls and carry the tools' names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from uringinfer.errors import UsageError


def with_results_in_order(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with each run of tool messages sorted by the calls that they answer, and named after them.

    A run counts only as a whole: where one of its messages answers no call of the assistant's last message,
    it stays as it came.
    """
    ordered: list[dict[str, Any]] = []
    calls: list[Any] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        if message["role"] != "tool":
            if message["role"] == "assistant":
                calls = _calls(message)
            ordered.append(message)
            position += 1
            continue
        stop = position
        while stop < len(messages) and messages[stop]["role"] == "tool":
            stop += 1
        ordered += _sorted(messages[position:stop], calls)
        position = stop
    return ordered


def name_of_call(call: Any) -> str:
    """The tool that `call` calls. Raises UsageError if it has no name."""
    function = call.get("function", call) if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise UsageError("a call in a message has no name", hint="name the tool in function.name")
    return name


def _calls(message: Mapping[str, Any]) -> list[Any]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list | tuple):
        raise UsageError("a message's tool_calls are no list", hint="give a list of calls")
    return list(calls)


def _sorted(run: Sequence[dict[str, Any]], calls: Sequence[Any]) -> list[dict[str, Any]]:
    places: dict[Any, int] = {}
    for place, call in enumerate(calls):
        identity = call.get("id") if isinstance(call, Mapping) else None
        if isinstance(identity, str):
            places.setdefault(identity, place)
    answered = [message.get("tool_call_id", message.get("id")) for message in run]
    if not all(isinstance(identity, str) and identity in places for identity in answered):
        return list(run)
    matched = sorted(zip(answered, run, strict=True), key=lambda pair: places[pair[0]])
    return [{**message, "tool": name_of_call(calls[places[identity]])} for identity, message in matched]
