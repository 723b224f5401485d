"""The values of templates: plain JSON types, and the few of Jinja's own below.

Nothing here hands out an attribute of a Python object: names are looked up in tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from uringinfer.text.template.meter import Meter, TemplateError


class Undefined:
    """What a name, key or index gives that is not there: empty text, false, and an error where it is used."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Undefined)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Undefined"

    def __bool__(self) -> bool:
        return False


class Namespace:
    """`namespace(...)`: attributes that `{% set ns.x = ... %}` changes, in loops too."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.attributes = dict(attributes)

    def __repr__(self) -> str:
        return "<Namespace>"


class Stream:
    """What `map`, `select` and their like give: true whatever it holds, and gone once walked over."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = list(items)

    def take(self) -> list[Any]:
        items, self._items = self._items, []
        return items

    def __repr__(self) -> str:
        return "<generator>"


class Function:
    """Something to call: a method, a macro, a global."""

    def __init__(self, name: str, run: Callable[..., Any]) -> None:
        self.name = name
        self.run = run

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Loop:
    """`loop` inside `{% for %}`."""

    def __init__(self, items: Sequence[Any], depth: int, again: Callable[[Any], str] | None) -> None:
        self.items = items
        self.index0 = 0
        self.depth = depth
        self.again = again
        self._last_seen: Any = None

    def attribute(self, name: str) -> Any:
        count, index0 = len(self.items), self.index0
        known: dict[str, Callable[[], Any]] = {
            "index": lambda: index0 + 1,
            "index0": lambda: index0,
            "revindex": lambda: count - index0,
            "revindex0": lambda: count - index0 - 1,
            "first": lambda: index0 == 0,
            "last": lambda: index0 == count - 1,
            "length": lambda: count,
            "depth": lambda: self.depth,
            "depth0": lambda: self.depth - 1,
            "previtem": lambda: self.items[index0 - 1] if index0 else Undefined("there is no previous item"),
            "nextitem": lambda: (
                self.items[index0 + 1] if index0 + 1 < count else Undefined("there is no next item")
            ),
            "cycle": lambda: Function("loop.cycle", lambda *values: values[index0 % len(values)]),
            "changed": lambda: Function("loop.changed", self._changed),
        }
        return known[name]() if name in known else Undefined(f"'loop' has no attribute '{name}'")

    def _changed(self, *values: Any) -> bool:
        seen, self._last_seen = self._last_seen, values
        return bool(seen != values)

    def __repr__(self) -> str:
        return "<loop>"


def text_of(value: Any, meter: Meter) -> str:
    """What `{{ value }}` writes."""
    if isinstance(value, str):
        return value
    if isinstance(value, Undefined):
        return ""
    if isinstance(value, list | tuple | dict):
        meter.weigh(value)
    return str(value)


def items_of(value: Any, meter: Meter) -> list[Any]:
    """What walking over `value` gives."""
    if isinstance(value, Stream):
        return value.take()
    if isinstance(value, Undefined):
        return []
    if isinstance(value, str):
        meter.pay(len(value) * (8 if value.isascii() else 80))
        return list(value)
    if isinstance(value, list | tuple | dict):
        meter.pay(8 * len(value))
        return list(value)
    raise TemplateError(f"{kind_of(value)} cannot be walked over")


def key_of(value: Any, meter: Meter) -> Any:
    """`value` as a key of a dictionary."""
    if isinstance(value, tuple):
        meter.weigh(value)
    try:
        hash(value)
    except TypeError:
        raise TemplateError(f"{kind_of(value)} is no key") from None
    return value


def length_of(value: Any) -> int:
    """What `length` gives."""
    if isinstance(value, Undefined):
        return 0
    if isinstance(value, str | list | tuple | dict):
        return len(value)
    raise TemplateError(f"{kind_of(value)} has no length")


def kind_of(value: Any) -> str:
    """The type of `value`, for messages."""
    if isinstance(value, Undefined):
        return value.what
    names = {"str": "a text", "dict": "an object", "list": "a list", "tuple": "a list", "NoneType": "none"}
    return names.get(type(value).__name__, f"a {type(value).__name__.lower()}")


def need_defined(value: Any) -> Any:
    """`value`; raises TemplateError if it is undefined."""
    if isinstance(value, Undefined):
        raise TemplateError(value.what)
    return value
