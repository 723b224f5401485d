"""Types of options: sizes, rates and lists of them, refused with the text that was given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from uringinfer.api import UsageError, parse_size


def parse_counts(text: str) -> list[int]:
    """ "199,399" -> [199, 399]. Raises UsageError for what is no list of whole numbers."""
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise UsageError(f"'{text}' is not a list of whole numbers", hint="write it as 199,399")
    return [int(word) for word in words]


def parse_sizes(text: str) -> list[int]:
    """ "8GB,16G" -> bytes. Raises UsageError for what is no list of sizes."""
    return [parse_size(word) for word in text.split(",")]


def parse_variables(texts: Sequence[str]) -> dict[str, Any]:
    """ "enable_thinking=false" -> {"enable_thinking": False}; a value that is no JSON is text.

    Raises UsageError for what sets no variable."""
    return dict(map(_variable, texts))


def _variable(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"'{text}' sets no variable", hint="write it as NAME=VALUE: enable_thinking=false")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
