"""Strict reading of hostile JSON: nothing is taken for what it should be until it is.

`parse_object` turns bytes into one JSON object without duplicate keys; `Fields` takes typed, bounded values
out of an object and refuses keys that nobody took. Every refusal is an IntegrityError of one line that says
where and what. This module knows nothing of containers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from uringinfer.errors import IntegrityError

MAX_INTEGER = (1 << 63) - 1
_IDENTIFIER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]{0,254}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,254}")
_SHOWN = 60


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object that `data` is. Raises IntegrityError for anything else and for duplicate keys."""
    try:
        value = json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{where}: not valid JSON: {_one_line(error)}") from None
    if not isinstance(value, dict):
        raise IntegrityError(f"{where}: holds {_shown(value)}, not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {_shown(double)} stands twice")
    return result


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _shown(value: object) -> str:
    """`value` for a message: one line of ASCII, cut when long."""
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge number"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


class Fields:
    """The values of one JSON object; `where` names the object in messages."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise IntegrityError(f"{where}: {_shown(value)} is not an object")
        self.where = where
        self._values: dict[str, Any] = dict(value)

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raises the IntegrityError that `problem` is wrong with `key`."""
        raise IntegrityError(f"{self.where}: {key}: {problem}")

    def _take(self, key: str) -> Any:
        if key not in self._values:
            raise IntegrityError(f"{self.where}: '{key}' is missing")
        return self._values.pop(key)

    def close(self, *, hint: str | None = None) -> None:
        """Refuses keys that were not taken: a newer format's, or damage."""
        if self._values:
            keys = ", ".join(_shown(key) for key in sorted(self._values)[:3])
            raise IntegrityError(f"{self.where}: unknown key {keys}", hint=hint)

    def integer(self, key: str, low: int, high: int) -> int:
        """An integer in [low, high]; neither a boolean nor a float is one."""
        return self._bounded(self._take(key), key, low, high)

    def optional_integer(self, key: str, low: int, high: int) -> int | None:
        """An integer in [low, high], or null."""
        value = self._take(key)
        return None if value is None else self._bounded(value, key, low, high)

    def optional_text(self, key: str) -> str | None:
        """Any string, or null."""
        value = self._take(key)
        if value is not None and type(value) is not str:
            self.fail(key, f"{_shown(value)} is not a string")
        return value

    def integers(self, key: str, count: int, low: int, high: int) -> tuple[int, ...]:
        """Exactly `count` integers, each in [low, high]."""
        values = self.items(key)
        if len(values) != count:
            self.fail(key, f"{len(values)} numbers where {count} belong")
        return self.bounded(values, key, low, high)

    def bounded(self, values: list[Any], key: str, low: int, high: int) -> tuple[int, ...]:
        """`values`, which were read as `key`, if all are integers in [low, high]."""
        # one comparison for each of up to 100,000 numbers; the slow path finds which one is wrong
        if not all(type(value) is int and low <= value <= high for value in values):
            for number, value in enumerate(values):
                self._bounded(value, f"{key}[{number}]", low, high)
        return tuple(values)

    def _bounded(self, value: Any, key: str, low: int, high: int) -> int:
        if type(value) is not int:
            self.fail(key, f"{_shown(value)} is not an integer")
        if not low <= value <= high:
            self.fail(key, f"{_shown(value)} is not between {low} and {high}")
        return value

    def number(self, key: str, low: float, high: float) -> float:
        """A number in [low, high], whole or not; neither a boolean nor NaN is one."""
        value = self._take(key)
        if type(value) not in (int, float):
            self.fail(key, f"{_shown(value)} is not a number")
        if not low <= value <= high:
            self.fail(key, f"{_shown(value)} is not between {low} and {high}")
        return float(value)

    def boolean(self, key: str) -> bool:
        value = self._take(key)
        if type(value) is not bool:
            self.fail(key, f"{_shown(value)} is neither true nor false")
        return value

    def text(self, key: str) -> str:
        """Any string."""
        value = self._take(key)
        if type(value) is not str:
            self.fail(key, f"{_shown(value)} is not a string")
        return value

    def identifier(self, key: str) -> str:
        """A name such as "layers.3/1": letters, digits and _ . - / in at most 255 characters."""
        return self._matching(key, _IDENTIFIER, "a name")

    def file_name(self, key: str) -> str:
        """A plain file name: no directory, no leading dot."""
        return self._matching(key, _FILE_NAME, "a plain file name")

    def _matching(self, key: str, pattern: re.Pattern[str], what: str) -> str:
        value = self._take(key)
        if type(value) is not str or pattern.fullmatch(value) is None:
            self.fail(key, f"{_shown(value)} is not {what}")
        return value

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def items(self, key: str) -> list[Any]:
        value = self._take(key)
        if type(value) is not list:
            self.fail(key, f"{_shown(value)} is not a list")
        return value

    def optional_items(self, key: str) -> list[Any] | None:
        """A list, or null."""
        if self._values.get(key, "") is None:
            self._take(key)
            return None
        return self.items(key)

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self._take(key)
        if type(value) is not dict:
            self.fail(key, f"{_shown(value)} is not an object")
        return value

    def optional_mapping(self, key: str) -> Mapping[str, Any] | None:
        """An object, or null."""
        if self._values.get(key, "") is None:
            self._take(key)
            return None
        return self.mapping(key)

    def shape(self, key: str, *, smallest: int = 1) -> tuple[int, ...]:
        """Dimensions of a tensor: at most 8, each at least `smallest`; their product fits in 63 bits."""
        values = self.items(key)
        if len(values) > 8:
            self.fail(key, f"{len(values)} dimensions are more than 8")
        product = 1
        for number, value in enumerate(values):
            product *= self._bounded(value, f"{key}[{number}]", smallest, MAX_INTEGER)
        if product > MAX_INTEGER:
            self.fail(key, "the tensor is larger than any file")
        return tuple(values)
