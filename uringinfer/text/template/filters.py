"""Jinja's filters, as far as chat templates use them. Each pays for what it makes before it makes it."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from uringinfer.text.template.meter import LimitError, Meter, TemplateError
from uringinfer.text.template.methods import attribute, join, replace
from uringinfer.text.template.operations import MAX_WIDTH, concatenate, format_percent
from uringinfer.text.template.values import (
    Stream,
    Undefined,
    items_of,
    key_of,
    length_of,
    need_defined,
    text_of,
)

_ESCAPED_GUARD = re.compile(r"(?<!\\)((?:\\\\)*)\\u(fd[de][0-9a-f])")
"""JSON's escape of one of `chat_guard`'s characters, behind any number of escaped backslashes."""
_WORD_STARTS = re.compile(r"([-\s({\[<]+)")


def _to_json(
    meter: Meter,
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes for HTML that Jinja's own filter makes; a guard is never spelled out."""
    need_defined(value)
    count, depth = meter.weigh(value)
    width = len(indent) if isinstance(indent, str) else (indent or 0)
    if not isinstance(width, int) or width > MAX_WIDTH:
        raise LimitError("JSON is indented by an absurd width")
    meter.pay(count * (width * depth + 2 + sum(map(len, separators or ()))))
    if ensure_ascii:
        meter.weigh(value)
        meter.weigh(value)
    try:
        text = json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
    except (TypeError, ValueError) as error:
        raise TemplateError(f"JSON has no such value ({error})") from None
    meter.made(text)
    if ensure_ascii:
        text = _ESCAPED_GUARD.sub(lambda match: match[1] + chr(int(match[2], 16)), text)
    return text


def _default(meter: Meter, value: Any, instead: Any = "", boolean: bool = False) -> Any:
    if isinstance(value, Undefined) or (boolean and not value):
        return instead
    return value


def _integer(meter: Meter, value: Any, default: Any = 0, base: int = 10) -> Any:
    try:
        return int(value, base) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        try:
            return int(float(value))
        except (TypeError, ValueError, OverflowError):
            return default


def _float(meter: Meter, value: Any, default: Any = 0.0) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return default


def _round(meter: Meter, value: Any, precision: int = 0, method: str = "common") -> Any:
    if method == "common":
        return round(value, precision)
    if method not in ("ceil", "floor") or not isinstance(precision, int) or abs(precision) > 300:
        raise TemplateError(f"numbers are not rounded by '{method}'")
    scale = 10**precision
    return (math.ceil if method == "ceil" else math.floor)(value * scale) / scale


def _join(meter: Meter, value: Any, separator: Any = "", attribute: Any = None) -> str:
    items = items_of(value, meter)
    if attribute is not None:
        items = [_pick(entry, attribute, meter) for entry in items]
    return join(text_of(separator, meter), [text_of(entry, meter) for entry in items], meter)


def _indent(meter: Meter, value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    text = text_of(value, meter)
    indention = width if isinstance(width, str) else " " * min(int(width), MAX_WIDTH + 1)
    if len(indention) > MAX_WIDTH:
        raise LimitError("a text is indented by an absurd width")
    meter.pay_items(2 * text.count("\n"))
    lines = (text + "\n").splitlines()
    meter.pay_text(2 * len(text) + len(indention) * (len(lines) + 1), text, indention)
    if blank:
        result = ("\n" + indention).join(lines)
    else:
        rest = [indention + line if line else line for line in lines[1:]]
        result = "\n".join([lines[0], *rest])
    return indention + result if first else result


def _title(meter: Meter, value: Any) -> str:
    text = text_of(value, meter)
    meter.pay_items(len(text))
    return "".join(part[0].upper() + part[1:].lower() for part in _WORD_STARTS.split(text) if part)


def _cased(method: str) -> Callable[..., str]:
    def run(meter: Meter, value: Any) -> str:
        text = text_of(value, meter)
        meter.pay_text(3 * len(text), text)
        return getattr(text, method)()  # type: ignore[no-any-return]

    return run


def _trim(meter: Meter, value: Any, characters: str | None = None) -> str:
    return meter.made(text_of(value, meter).strip(characters))  # type: ignore[no-any-return]


def _escape(meter: Meter, value: Any) -> str:
    text = text_of(value, meter)
    meter.pay_text(6 * len(text), text)
    return html.escape(text, quote=False).replace('"', "&#34;").replace("'", "&#39;")


def _replace(meter: Meter, value: Any, old: Any, new: Any, count: Any = None) -> str:
    texts = [text_of(part, meter) for part in (value, old, new)]
    return replace(texts[0], texts[1], texts[2], count, meter)


def _first(meter: Meter, value: Any) -> Any:
    items = items_of(value, meter)
    return items[0] if items else Undefined("there is no first item")


def _last(meter: Meter, value: Any) -> Any:
    items = items_of(value, meter)
    return items[-1] if items else Undefined("there is no last item")


def _reverse(meter: Meter, value: Any) -> Any:
    if isinstance(value, str):
        return meter.made(value[::-1])
    return items_of(value, meter)[::-1]


def _items(meter: Meter, value: Any) -> Stream:
    if isinstance(value, Undefined):
        return Stream([])
    if not isinstance(value, dict):
        raise TemplateError("only an object has items")
    meter.pay(80 * len(value))
    return Stream(list(value.items()))


def _sorting_key(case_sensitive: bool, meter: Meter, attribute: Any = None) -> Callable[[Any], Any]:
    names = str(attribute).split(",") if isinstance(attribute, str) else [attribute]

    def key(entry: Any) -> Any:
        meter.step()
        picked = [entry if name is None else _pick(entry, name, meter) for name in names]
        if not case_sensitive:
            picked = [part.lower() if isinstance(part, str) else part for part in picked]
        meter.weigh(picked)
        return picked[0] if len(picked) == 1 else picked

    return key


def _sort(
    meter: Meter, value: Any, reverse: bool = False, case_sensitive: bool = False, attribute: Any = None
) -> list[Any]:
    items = items_of(value, meter)
    return sorted(items, key=_sorting_key(case_sensitive, meter, attribute), reverse=reverse)


def _dictsort(
    meter: Meter, value: Any, case_sensitive: bool = False, by: str = "key", reverse: bool = False
) -> list[Any]:
    place = {"key": 0, "value": 1}.get(by)
    if place is None or not isinstance(value, dict):
        raise TemplateError("an object is sorted by 'key' or 'value'")
    meter.pay(80 * len(value))
    key = _sorting_key(case_sensitive, meter)
    return sorted(value.items(), key=lambda pair: key(pair[place]), reverse=reverse)


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    def run(meter: Meter, value: Any, case_sensitive: bool = False, attribute: Any = None) -> Any:
        items = items_of(value, meter)
        if not items:
            return Undefined("no aggregated item, sequence was empty")
        return choose(items, key=_sorting_key(case_sensitive, meter, attribute))

    return run


def _unique(meter: Meter, value: Any, case_sensitive: bool = False, attribute: Any = None) -> Stream:
    key = _sorting_key(case_sensitive, meter, attribute)
    first: dict[Any, Any] = {}
    for entry in items_of(value, meter):
        first.setdefault(key_of(key(entry), meter), entry)
    return Stream(list(first.values()))


def _groupby(meter: Meter, value: Any, attribute: Any, default: Any = None) -> list[Any]:
    key = _sorting_key(True, meter, attribute)
    groups: dict[Any, list[Any]] = {}
    for entry in sorted(items_of(value, meter), key=key):
        groups.setdefault(key_of(key(entry), meter), []).append(entry)
    return list(groups.items())


def _batch(meter: Meter, value: Any, count: int, fill: Any = None) -> Stream:
    items = items_of(value, meter)
    meter.pay_items(len(items))
    batches = [items[start : start + count] for start in range(0, len(items), count)]
    if fill is not None and batches:
        meter.pay_items(count)
        batches[-1] += [fill] * (count - len(batches[-1]))
    return Stream(batches)


def _slice(meter: Meter, value: Any, count: int, fill: Any = None) -> Stream:
    items = items_of(value, meter)
    meter.pay_items(count + len(items))
    each, more = divmod(len(items), count)
    slices, start = [], 0
    for number in range(count):
        stop = start + each + (number < more)
        padding = [fill] if fill is not None and number >= more else []
        slices.append(items[start:stop] + padding)
        start = stop
    return Stream(slices)


def _sum(meter: Meter, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    total = start
    for entry in items_of(value, meter):
        meter.step()
        entry = entry if attribute is None else _pick(entry, attribute, meter)
        if not isinstance(entry, int | float) or not isinstance(total, int | float):
            raise TemplateError("only numbers can be summed")
        total += entry
    return total


def _truncate(
    meter: Meter, value: Any, length: int = 255, killwords: bool = False, end: str = "...", leeway: int = 5
) -> str:
    text = text_of(value, meter)
    if len(text) <= length + leeway:
        return text
    kept = meter.made(text[: length - len(end)])
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + end  # type: ignore[no-any-return]


def _pick(entry: Any, path: Any, meter: Meter) -> Any:
    """The part of `entry` that `attribute="a.b"` names."""
    for name in str(path).split(".") if isinstance(path, str) else [path]:
        if isinstance(entry, dict) and name in entry:
            entry = entry[name]
        elif isinstance(entry, list | tuple) and str(name).isdecimal() and int(name) < len(entry):
            entry = entry[int(name)]
        elif isinstance(name, str):
            entry = attribute(entry, name, meter)
        else:
            entry = Undefined(f"there is no item {name}")
    return entry


pick = _pick

FILTERS: Mapping[str, Callable[..., Any]] = {
    "abs": lambda meter, value: abs(value),
    "attr": lambda meter, value, name: attribute(value, str(name), meter),
    "batch": _batch,
    "capitalize": _cased("capitalize"),
    "count": lambda meter, value: length_of(value),
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "e": _escape,
    "escape": _escape,
    "first": _first,
    "float": _float,
    "format": lambda meter, value, *args, **named: format_percent(
        text_of(value, meter), args or named, meter
    ),
    "groupby": _groupby,
    "indent": _indent,
    "int": _integer,
    "items": _items,
    "join": _join,
    "last": _last,
    "length": lambda meter, value: length_of(value),
    "list": lambda meter, value: items_of(value, meter),
    "lower": _cased("lower"),
    "max": _extreme(max),
    "min": _extreme(min),
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": lambda meter, value: text_of(value, meter),
    "slice": _slice,
    "sort": _sort,
    "string": lambda meter, value: concatenate([value], meter),
    "sum": _sum,
    "title": _title,
    "tojson": _to_json,
    "trim": _trim,
    "truncate": _truncate,
    "unique": _unique,
    "upper": _cased("upper"),
    "wordcount": lambda meter, value: len(re.findall(r"\w+", text_of(value, meter))),
}
"""By name; `map`, `select`, `reject`, `selectattr` and `rejectattr` need the interpreter and are there."""
