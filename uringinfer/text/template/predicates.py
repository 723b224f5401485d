"""Jinja's tests: `value is NAME`, and what `select` and its like ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uringinfer.text.template.meter import Meter, TemplateError
from uringinfer.text.template.operations import compare
from uringinfer.text.template.values import Function, Stream, Undefined, text_of


def test(name: str, value: Any, args: list[Any], meter: Meter) -> bool:
    """Whether `value is name(*args)`."""
    if name in _COMPARISONS:
        (other,) = args
        return compare(_COMPARISONS[name], value, other, meter)
    if name in ("lower", "upper"):
        text = text_of(value, meter)
        return text.islower() if name == "lower" else text.isupper()
    predicate = _PREDICATES.get(name)
    if predicate is None:
        raise TemplateError(f"there is no test named '{name}'")
    return predicate(value, *args)


_COMPARISONS = {
    "==": "eq",
    "eq": "eq",
    "equalto": "eq",
    "!=": "ne",
    "ne": "ne",
    ">": "gt",
    "gt": "gt",
    "greaterthan": "gt",
    ">=": "gteq",
    "ge": "gteq",
    "<": "lt",
    "lt": "lt",
    "lessthan": "lt",
    "<=": "lteq",
    "le": "lteq",
    "in": "in",
}
_PREDICATES: Mapping[str, Callable[..., bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "callable": lambda value: isinstance(value, Function | Undefined),
    "defined": lambda value: not isinstance(value, Undefined),
    "divisibleby": lambda value, number: bool(value % number == 0),
    "escaped": lambda value: False,
    "even": lambda value: bool(value % 2 == 0),
    "false": lambda value: value is False,
    "float": lambda value: isinstance(value, float),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "iterable": lambda value: isinstance(value, str | list | tuple | dict | Stream | Undefined),
    "mapping": lambda value: isinstance(value, dict),
    "none": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float),
    "odd": lambda value: bool(value % 2 == 1),
    "sameas": lambda value, other: value is other,
    "sequence": lambda value: isinstance(value, str | list | tuple | dict | Undefined),
    "string": lambda value: isinstance(value, str),
    "true": lambda value: value is True,
    "undefined": lambda value: isinstance(value, Undefined),
}
