"""The sandbox that chat templates run in, with the names that published templates expect.

A template is code from a checkpoint: it runs in Jinja's immutable sandbox, sees only the messages, and can
neither read files nor reach Python's internals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.utils
from jinja2.sandbox import ImmutableSandboxedEnvironment

_ESCAPED_GUARD = re.compile(r"(?<!\\)((?:\\\\)*)\\u(fd[de][0-9a-f])")
"""JSON's escape of one of `chat_guard`'s characters, behind any number of escaped backslashes."""


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks what an assistant said, for training; here it is its
    body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance's attribute

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def make_environment(now: Callable[[], datetime] = datetime.now) -> ImmutableSandboxedEnvironment:
    """The environment of transformers' `apply_chat_template`: the same extensions, filters and globals.

    `now` is the clock behind `strftime_now`.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["namespace"] = _Namespace
    environment.globals["dict"] = _dictionary
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda pattern: now().strftime(pattern)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes for HTML that Jinja's own filter makes; a guard is never spelled out."""
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if ensure_ascii:
        text = _ESCAPED_GUARD.sub(lambda match: match[1] + chr(int(match[2], 16)), text)
    return text


class _Namespace(jinja2.utils.Namespace):
    """`namespace()` of templates, without names that Python itself would look at."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # jinja2's own trick: a template may write namespace(self=...)
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot hold '{name}'")


def _dictionary(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """`dict()` of templates: a function, because the class has an `update` that gets past the sandbox."""
    return dict(*args, **kwargs)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
