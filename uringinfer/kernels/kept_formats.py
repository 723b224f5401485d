"""What formats without an encoder have in common: they are kept as files have them."""

from __future__ import annotations

from typing import NoReturn

from uringinfer.errors import UsageError
from uringinfer.kernels.weight_format import Floats


def kept_only(name: str, matrix: Floats) -> NoReturn:
    """Stands in for the encoder of the format `name`; raises UsageError."""
    raise UsageError(
        f"{name} is kept as a file has it, a matrix {matrix.shape} is not packed in it",
        hint="choose one of the formats that docs/formats.md gives an error for",
    )
