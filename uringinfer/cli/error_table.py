"""The error report of a conversion as a table: one line for each kind of tensor."""

from __future__ import annotations

from collections.abc import Sequence

from uringinfer.api import KindError
from uringinfer.cli.table import format_table

_HEADER = ("converted", "from", "to", "tensors", "error, mean", "worst", "in")


def error_table(errors: Sequence[KindError]) -> str:
    """Relative Frobenius errors in percent."""
    rows = [
        (
            error.kind,
            error.origin,
            error.format,
            str(error.tensors),
            f"{error.mean:.2%}",
            f"{error.worst:.2%}",
            error.worst_tensor,
        )
        for error in errors
    ]
    return format_table(_HEADER, rows, align="<<<>>><")
