"""Jinja templates run by an interpreter of this package's own, which bounds time and memory.

A chat template is code from a checkpoint, so from anyone. Jinja compiles templates to Python and runs that,
which no sandbox keeps from making a string of 10 GB (it does so while compiling: constants are folded) or
from looping for ever. Here Jinja only parses. What comes out is walked node by node: values are of a few
plain types, every method and filter is named in a table, each step looks at the clock now and then, and each
value is paid for before it is made (`meter`). So no template can take more than its share, reach a file, or
see Python's own objects, whatever it says.
"""

from uringinfer.text.template.interpreter import Template
from uringinfer.text.template.meter import DEFAULT_SECONDS, LimitError, Meter, TemplateError

__all__ = ["DEFAULT_SECONDS", "LimitError", "Meter", "Template", "TemplateError"]
