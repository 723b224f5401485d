"""The names that every chat template may use."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from uringinfer.text.template.meter import LimitError, Meter, TemplateError
from uringinfer.text.template.values import Function, Namespace, items_of

MAX_RANGE = 100_000


def make_globals(meter: Meter, now: Callable[[], datetime]) -> dict[str, Any]:
    """The functions that transformers gives to chat templates."""

    def numbers(*bounds: int) -> list[int]:
        found = range(*bounds)
        if len(found) > MAX_RANGE:
            raise LimitError(f"a range of more than {MAX_RANGE} numbers")
        meter.pay(40 * len(found))
        return list(found)

    def namespace(*given: Any, **attributes: Any) -> Namespace:
        names = _pairs(meter, given) | attributes
        if any(not isinstance(name, str) or name.startswith("_") for name in names):
            raise TemplateError("a namespace's names are texts that begin with a letter")
        return Namespace(names)

    def date(pattern: str) -> str:
        if len(pattern) > 200 or re.search(r"%[^a-zA-Z%]", pattern):
            raise LimitError("a date is written in an unknown way")
        return now().strftime(pattern)

    functions: dict[str, Callable[..., Any]] = {
        "range": numbers,
        "namespace": namespace,
        "dict": lambda *given, **entries: _pairs(meter, given) | entries,
        "strftime_now": date,
        "raise_exception": _raise,
    }
    return {name: Function(name, run) for name, run in functions.items()}


def _pairs(meter: Meter, given: tuple[Any, ...]) -> dict[Any, Any]:
    if len(given) > 1:
        raise TemplateError("one object is taken at most")
    if not given:
        return {}
    meter.weigh(given[0])
    if isinstance(given[0], dict):
        return dict(given[0])
    return dict(items_of(given[0], meter))


def _raise(message: Any) -> None:
    raise TemplateError(str(message)[:500])
