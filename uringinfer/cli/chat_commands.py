"""The commands of a chat: their names, what they do, and the settings that can be changed in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uringinfer.api import UsageError

COMMANDS: Mapping[str, str] = {
    "system": "TEXT: set the system text; alone: show it; /system - takes it away",
    "undo": "take the last turn back",
    "retry": "answer the last turn anew",
    "edit": "TEXT: say this instead of the last turn; alone: change its text",
    "reset": "begin anew, with the same system text",
    "save": "FILE: keep the conversation in a file",
    "load": "FILE: go on with the conversation in a file",
    "stats": "the statistics of the last answer",
    "set": "NAME VALUE: change a setting, such as temp 0.7; alone: show all",
    "help": "this list",
    "quit": "leave, as Ctrl-D does",
}
SETTINGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "temp": ("temperature", float),
    "top-k": ("top_k", int),
    "top-p": ("top_p", float),
    "min-p": ("min_p", float),
    "repeat-penalty": ("repeat_penalty", float),
    "repeat-window": ("repeat_window", int),
    "seed": ("seed", int),
    "max-tokens": ("max_tokens", int),
}
"""Names as on the command line -> (option, how its text is read)."""


def split_command(line: str) -> tuple[str, str]:
    """ "/set temp 0.7" -> ("set", "temp 0.7"). Raises UsageError for a command that there is not."""
    name, _, rest = line[1:].partition(" ")
    if name not in COMMANDS:
        raise UsageError(f"there is no command '/{name}'", hint="/help lists them")
    return name, rest.strip()


def parse_setting(text: str) -> tuple[str, Any]:
    """ "temp 0.7" -> ("temperature", 0.7). Raises UsageError for a setting or value that cannot be."""
    name, _, value = text.partition(" ")
    if name not in SETTINGS:
        raise UsageError(f"there is no setting '{name}'", hint=f"they are {', '.join(SETTINGS)}")
    option, read = SETTINGS[name]
    try:
        return option, read(value)
    except ValueError:
        raise UsageError(f"'{value}' is no value of {name}", hint=f"such as /set {name} 1") from None


def help_text() -> str:
    """A line for each command."""
    width = max(map(len, COMMANDS)) + 1
    return "\n".join(f"/{name:<{width}} {what}" for name, what in COMMANDS.items())
