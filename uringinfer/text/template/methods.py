"""Attributes, items and methods of values: what is not named here is not there."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from uringinfer.text.template.meter import LimitError, Meter, TemplateError
from uringinfer.text.template.operations import MAX_WIDTH
from uringinfer.text.template.values import (
    Function,
    Loop,
    Namespace,
    Undefined,
    items_of,
    key_of,
    need_defined,
    text_of,
)

_FOUND = frozenset(("count", "endswith", "find", "index", "rfind", "rindex", "startswith"))
_KINDS = "alnum alpha ascii decimal digit identifier lower numeric space title upper"
_SHORT = _FOUND | {f"is{kind}" for kind in _KINDS.split()}
"""Methods of texts whose results are small."""
_SAME_SIZE = frozenset(
    ("lstrip", "rstrip", "strip", "removeprefix", "removesuffix", "partition", "rpartition")
)
_CASES = frozenset(("capitalize", "casefold", "lower", "swapcase", "title", "upper"))
_PADDED = frozenset(("center", "ljust", "rjust", "zfill"))
_SPLITS = frozenset(("split", "rsplit", "splitlines"))
_TEXT_METHODS = _SHORT | _SAME_SIZE | _CASES | _PADDED | _SPLITS
_PIECES = re.compile(r"\s+")


def attribute(value: Any, name: str, meter: Meter) -> Any:
    """`value.name`: a method or a key, as Jinja looks for them."""
    need_defined(value)
    if isinstance(value, Namespace):
        if name in value.attributes:
            return value.attributes[name]
        return Undefined(f"the namespace has no attribute '{name}'")
    if isinstance(value, Loop):
        return value.attribute(name)
    if isinstance(value, Function):
        if name == "name":
            return value.name
        return Undefined(f"a function has no attribute '{name}'")
    method = _method(value, name, meter)
    if method is not None:
        return Function(name, method)
    if hasattr(type(value), name):
        raise TemplateError(f"the attribute '{name}' is not for templates")
    if isinstance(value, dict) and name in value:
        return value[name]
    return Undefined(f"'{_noun(value)}' has no attribute '{name}'")


def item(value: Any, key: Any, meter: Meter) -> Any:
    """`value[key]`: an item, else an attribute."""
    need_defined(value)
    if isinstance(value, dict) and key_of(key, meter) in value:
        return value[key]
    if isinstance(value, list | tuple | str) and isinstance(key, int):
        if -len(value) <= key < len(value):
            return value[key]
        return Undefined(f"'{_noun(value)}' has no item {key}")
    if isinstance(key, str):
        if isinstance(value, dict) and _method(value, key, meter) is None:
            return Undefined(f"'{_noun(value)}' has no attribute '{key}'")
        return attribute(value, key, meter)
    return Undefined(f"'{_noun(value)}' has no such item")


def cut(value: Any, start: Any, stop: Any, step: Any, meter: Meter) -> Any:
    """`value[start:stop:step]`."""
    need_defined(value)
    if not isinstance(value, str | list | tuple):
        raise TemplateError(f"'{_noun(value)}' cannot be sliced")
    return meter.made(value[slice(start, stop, step)])


def _method(value: Any, name: str, meter: Meter) -> Callable[..., Any] | None:
    if isinstance(value, str):
        return _text_method(value, name, meter)
    if isinstance(value, dict):
        return _object_method(value, name, meter)
    if isinstance(value, list | tuple) and name in ("index", "count"):
        bound = getattr(value, name)
        return lambda *args: (meter.weigh([value, *args]), bound(*args))[1]
    return None


def _object_method(value: Mapping[Any, Any], name: str, meter: Meter) -> Callable[..., Any] | None:
    if name == "items":
        return lambda: _paid_list(value.items(), 80 * len(value), meter)
    if name == "keys":
        return lambda: _paid_list(value.keys(), 8 * len(value), meter)
    if name == "values":
        return lambda: _paid_list(value.values(), 8 * len(value), meter)
    if name == "get":
        return lambda key, default=None: value.get(key_of(key, meter), default)
    return None


def _paid_list(items: Any, nbytes: int, meter: Meter) -> list[Any]:
    meter.pay(nbytes)
    return list(items)


def _text_method(value: str, name: str, meter: Meter) -> Callable[..., Any] | None:
    if name == "format":
        return lambda *args, **kwargs: _format(value, args, kwargs, meter)
    if name == "join":
        return lambda items: join(value, items_of(items, meter), meter)
    if name == "replace":
        return lambda old, new, count=-1: replace(value, old, new, count, meter)
    if name not in _TEXT_METHODS:
        return None
    bound = getattr(value, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        if name in _PADDED:
            width = args[0] if args else 0
            if not isinstance(width, int) or width > MAX_WIDTH + len(value):
                raise LimitError("a text is padded to an absurd width")
        elif name in _SPLITS:
            separator = args[0] if args and isinstance(args[0], str) else None
            meter.pay_items(count_pieces(value, separator))
            meter.pay_text(len(value), value)
        elif name in _CASES:
            meter.pay_text(3 * len(value), value)
        elif name in _SAME_SIZE:
            meter.pay_text(len(value), value)
        return bound(*args, **kwargs)

    return run


def count_pieces(text: str, separator: str | None) -> int:
    """At least as many pieces as `text.split(separator)` or `text.splitlines()` gives."""
    if separator:
        return text.count(separator) + 1
    if len(text) < 1000:
        return len(text) // 2 + 1
    return sum(1 for _ in _PIECES.finditer(text)) * 2 + 1


def replace(text: str, old: Any, new: Any, count: Any, meter: Meter) -> str:
    """`text.replace(old, new, count)`."""
    if not isinstance(old, str) or not isinstance(new, str):
        raise TemplateError("only text can be replaced, by text")
    times = text.count(old) if old else len(text) + 1
    if isinstance(count, int) and count >= 0:
        times = min(times, count)
    meter.pay_text(len(text) + times * max(len(new) - len(old), 0), text, new)
    return text.replace(old, new, -1 if count is None else count)


def join(separator: str, items: Sequence[Any], meter: Meter) -> str:
    """`separator.join(items)`, of texts alone."""
    if not all(isinstance(entry, str) for entry in items):
        raise TemplateError("only texts can be joined")
    meter.pay_text(
        sum(map(len, items)) + len(separator) * len(items), separator, *items[:1], "".join(items[1:2])
    )
    if any(not entry.isascii() for entry in items):
        meter.pay(3 * (sum(map(len, items)) + len(separator) * len(items)))
    return separator.join(items)


class _Formatter(string.Formatter):
    """`str.format` without attributes, items and absurd widths."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        if "." in field_name or "[" in field_name:
            raise TemplateError("a format looks into a value")
        return super().get_field(field_name, args, kwargs)

    def format_field(self, value: Any, format_spec: str) -> Any:
        if any(int(number[:9]) > MAX_WIDTH for number in re.findall(r"\d+", format_spec)):
            raise LimitError("a format asks for an absurd width")
        self._meter.pay(MAX_WIDTH)
        if isinstance(value, str | int | float):
            return format(value, format_spec)
        return format(text_of(value, self._meter), format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        self._meter.weigh(value)
        return super().convert_field(value, conversion)


def _format(pattern: str, args: Sequence[Any], kwargs: Mapping[str, Any], meter: Meter) -> str:
    fields = pattern.count("{")
    meter.weigh([*args, *kwargs.values()])
    longest = max((len(value) for value in (*args, *kwargs.values()) if isinstance(value, str)), default=0)
    meter.pay(4 * (len(pattern) + fields * longest))
    try:
        return meter.made(_Formatter(meter).vformat(pattern, args, kwargs))  # type: ignore[no-any-return]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise TemplateError(f"a format cannot be filled in: {error}") from None


def _noun(value: Any) -> str:
    """As Jinja's own messages call a value."""
    return "none" if value is None else f"{type(value).__name__} object"
