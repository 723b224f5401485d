"""Operators of templates: each result is paid for before it is made."""

from __future__ import annotations

import re
from typing import Any

from uringinfer.text.template.meter import LimitError, Meter, TemplateError, check_integer
from uringinfer.text.template.values import Undefined, items_of, key_of, kind_of, need_defined, text_of

_CONVERSION = re.compile(r"%(?:\(([^)]*)\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?[hlL]?(.)", re.DOTALL)
MAX_WIDTH = 1000
"""Of a number or text in a format: more is not for reading."""


def add(left: Any, right: Any, meter: Meter) -> Any:
    """left + right."""
    _need_both(left, right)
    if isinstance(left, str) and isinstance(right, str):
        meter.pay_text(len(left) + len(right), left, right)
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        meter.pay(8 * (len(left) + len(right)) + 64)
    else:
        _need_numbers(left, right, "added")
    return left + right


def multiply(left: Any, right: Any, meter: Meter) -> Any:
    """left * right."""
    _need_both(left, right)
    if isinstance(left, int) and isinstance(right, str | list | tuple):
        left, right = right, left
    if isinstance(left, str | list | tuple):
        if not isinstance(right, int):
            raise TemplateError(f"{kind_of(left)} cannot be multiplied with {kind_of(right)}")
        length = len(left) * max(right, 0)
        if isinstance(left, str):
            meter.pay_text(length, left)
        else:
            meter.pay(8 * length + 64)
        return left * right
    _need_numbers(left, right, "multiplied")
    if isinstance(left, int) and isinstance(right, int):
        check_integer(left.bit_length() + right.bit_length())
    return left * right


def power(base: Any, exponent: Any, meter: Meter) -> Any:
    """base ** exponent."""
    _need_both(base, exponent)
    _need_numbers(base, exponent, "multiplied")
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0:
        check_integer(base.bit_length() * exponent)
    result = base**exponent
    if isinstance(result, complex):
        raise TemplateError("a power is no number")
    return result


def modulo(left: Any, right: Any, meter: Meter) -> Any:
    """left % right: of numbers, or a text with values in it."""
    _need_both(left, right)
    if isinstance(left, str):
        return format_percent(left, right, meter)
    _need_numbers(left, right, "divided")
    return left % right


def arithmetic(operator: str, left: Any, right: Any) -> Any:
    """left - right, left / right, left // right."""
    _need_both(left, right)
    _need_numbers(left, right, "subtracted" if operator == "-" else "divided")
    if operator == "-":
        return left - right
    return left / right if operator == "/" else left // right


def format_percent(pattern: str, values: Any, meter: Meter) -> str:
    """pattern % values, with widths that are not absurd."""
    meter.weigh(values)
    meter.pay_text(2 * len(pattern), pattern)
    for match in _CONVERSION.finditer(pattern):
        name, *widths, kind = match.groups()
        if kind == "%":
            continue
        if any(width == "*" or (width and int(width[:9]) > MAX_WIDTH) for width in widths):
            raise LimitError("a format asks for an absurd width")
        meter.pay(MAX_WIDTH)
        if name is not None and isinstance(values, dict):
            meter.weigh(values.get(name))
    try:
        return meter.made(pattern % values)  # type: ignore[no-any-return]
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise TemplateError(f"a format cannot be filled in: {error}") from None


def concatenate(values: list[Any], meter: Meter) -> str:
    """a ~ b ~ c."""
    texts = [text_of(value, meter) for value in values]
    meter.pay_text(sum(map(len, texts)), *texts)
    return "".join(texts)


def compare(operator: str, left: Any, right: Any, meter: Meter) -> bool:
    """Jinja's comparisons: eq, ne, lt, lteq, gt, gteq, in, notin."""
    if operator in ("in", "notin"):
        return _contains(right, left, meter) == (operator == "in")
    for value in (left, right):
        if isinstance(value, list | tuple | dict):
            meter.weigh(value)
    if operator in ("eq", "ne"):
        return bool(left == right) == (operator == "eq")
    _need_both(left, right)
    try:
        if operator in ("lt", "lteq"):
            return bool(left < right) if operator == "lt" else bool(left <= right)
        return bool(left > right) if operator == "gt" else bool(left >= right)
    except TypeError:
        raise TemplateError(f"{kind_of(left)} cannot be compared with {kind_of(right)}") from None


def _contains(container: Any, item: Any, meter: Meter) -> bool:
    if isinstance(container, str):
        if not isinstance(item, str):
            raise TemplateError(f"{kind_of(item)} is looked for in a text")
        return item in container
    if isinstance(container, dict):
        return key_of(item, meter) in container
    if isinstance(container, Undefined):
        return False
    items = items_of(container, meter)
    if isinstance(item, list | tuple | dict):
        meter.weigh(item)
        meter.weigh(items)
    return item in items


def _need_both(left: Any, right: Any) -> None:
    need_defined(left)
    need_defined(right)


def _need_numbers(left: Any, right: Any, what: str) -> None:
    for value in (left, right):
        if not isinstance(value, int | float):
            raise TemplateError(f"{kind_of(left)} and {kind_of(right)} cannot be {what}")
