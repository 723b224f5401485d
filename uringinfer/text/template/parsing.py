"""Template source to Jinja's tree of nodes. Nothing is compiled or run."""

from __future__ import annotations

import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser

from uringinfer.text.template.meter import LimitError

MAX_SOURCE = 256 << 10
"""Characters of a template; published ones have 30,000 at most."""


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks what an assistant said, for training; here it is its
    body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance's attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


_ENVIRONMENT = jinja2.Environment(
    trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _GenerationTag]
)
"""As transformers sets it up for chat templates."""


def parse(source: str) -> list[nodes.Node]:
    """The statements of a template. Raises jinja2.TemplateSyntaxError, and LimitError for an absurd one."""
    if len(source) > MAX_SOURCE:
        raise LimitError(f"it has {len(source)} characters, more than {MAX_SOURCE}")
    try:
        return _ENVIRONMENT.parse(source).body
    except RecursionError:
        raise LimitError("it nests too deep") from None
    except (ValueError, OverflowError) as error:  # a number of thousands of digits
        raise LimitError(str(error)) from None
