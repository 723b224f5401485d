"""Keeps what people wrote from becoming control tokens when a chat template has mixed it with markup.

A template gives one string, in which "<|im_end|>" of the template and "<|im_end|>" of a user look alike. So,
before the template runs, a *guard* is put into every string of the messages: a character that occurs nowhere
else, behind each character that could begin a control token. What the template then writes itself still
matches; what came from a message never does, however the template trims, joins or slices it, because every
piece of it carries its guards along. `Tokenizer.split_markup` looks for control tokens first and drops the
guards after.

Guards go behind the first character, not around the text, so that a template's `trim`, `startswith` and
comparisons of ordinary words see what they would have seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from uringinfer.errors import UsageError
from uringinfer.text.vocabulary import AddedToken

_CANDIDATES = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Unicode's noncharacters "for internal use": no text that is interchanged holds them."""


class ChatGuard:
    """Guards the strings of one conversation against one tokenizer's control tokens."""

    def __init__(self, control_tokens: Sequence[AddedToken], character: str) -> None:
        """`character` is the guard; take it from `free_character`."""
        self.character = character
        contents = [token.content for token in control_tokens]
        visible = [token.content for token in control_tokens if not token.special]
        self._tails = {content[cut:] for content in contents for cut in range(1, len(content))}
        self._longest_tail = max(map(len, self._tails), default=0)
        self._starts = _pattern(_starts(contents))
        self._starts_or_visible = _pattern([*visible, *_starts(contents)])
        self._visible = frozenset(visible)

    def apply(self, value: Any, *, keep_visible: bool = False) -> Any:
        """A copy of `value` (nested lists and dictionaries) with guards in every string and key.

        Raises UsageError for anything that JSON has not: it could turn into text later, without guards.
        `keep_visible` leaves whole structural tokens that are not special (`<think>`) as they are: the model
        itself writes them as text, and templates look for them in what an assistant said.
        """
        if isinstance(value, str):
            return self._guard(value, keep_visible)
        if isinstance(value, Mapping):
            return {
                self.apply(key, keep_visible=keep_visible): self.apply(entry, keep_visible=keep_visible)
                for key, entry in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.apply(entry, keep_visible=keep_visible) for entry in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        raise UsageError(f"a message holds a {type(value).__name__}", hint="give what JSON can hold")

    def _guard(self, text: str, keep_visible: bool) -> str:
        def replace(match: re.Match[str]) -> str:
            found = match.group()
            if keep_visible and found in self._visible:
                return found
            return found[0] + self.character + found[1:]

        pattern = self._starts_or_visible if keep_visible else self._starts
        guarded = pattern.sub(replace, text) if pattern else text
        # the template's own last character before this text could be the first of a control token
        ends_a_token = any(text[:n] in self._tails for n in range(1, min(self._longest_tail, len(text)) + 1))
        return self.character + guarded if ends_a_token else guarded


def free_character(*values: Any) -> str:
    """A character that no string in `values` (nested lists and dictionaries) holds.

    Raises UsageError if the strings hold every candidate, which no honest text does.
    """
    used = {character for text in _strings(values) for character in _CANDIDATES if character in text}
    for character in _CANDIDATES:
        if character not in used:
            return character
    raise UsageError(
        "the messages hold all of U+FDD0 to U+FDEF", hint="these are not characters; leave them out"
    )


def _starts(contents: Sequence[str]) -> list[str]:
    """What may begin a control token: its first character where that is punctuation, else all of it (a guard
    behind every letter of one kind would hide words from the template)."""
    return [content if content[0].isalnum() else content[0] for content in contents]


def _pattern(texts: Sequence[str]) -> re.Pattern[str] | None:
    longest_first = sorted(set(texts), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _strings(key)
            yield from _strings(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _strings(entry)
