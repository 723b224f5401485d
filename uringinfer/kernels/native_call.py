"""What calls into the native kernels need to know of a packed weight: how it lies in its bytes.

Importing this module fails with ImportError where the extension was not built.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from uringinfer.kernels.affine_formats import is_ordered
from uringinfer.kernels.formats import FORMATS, Weight, WeightFormat
from uringinfer.kernels.native_library import ffi, lib

_NUMBERS = {name: lib.kernels_format(name.encode()) for name in FORMATS}
"""What the library calls each format, -1 for those that it has no products with."""


def has_products(form: WeightFormat) -> bool:
    """Whether the native kernels multiply matrices in this format."""
    return bool(_NUMBERS[form.name] >= 0) and not is_ordered(form)


def has_ordered_products(form: WeightFormat) -> bool:
    """Whether they do so once the activations are put in the order of the packed columns."""
    return bool(_NUMBERS[form.name] >= 0) and is_ordered(form)


def format_number(form: WeightFormat) -> int:
    """What the library calls the format."""
    return int(_NUMBERS[form.name])


def matrix(form: WeightFormat, rows: int, cols: int) -> Any:
    """A `struct kernels_matrix *` for a packed matrix [rows, cols]."""
    return _known(form.name, rows, cols)[0]


def packed(weight: Weight) -> tuple[Any, Any]:
    """`matrix` for a weight, and a pointer to its bytes. Raises ValueError if they are not as many as its
    shape takes."""
    known, nbytes = _known(weight.format.name, weight.rows, weight.cols)
    data = weight.data
    if data.dtype != np.uint8 or data.shape != (nbytes,):
        weight.sections()  # says what is wrong
    return known, ffi.from_buffer("char[]", data)


@lru_cache(maxsize=1024)
def _known(name: str, rows: int, cols: int) -> tuple[Any, int]:
    """The struct, and the bytes of such a matrix."""
    form = FORMATS[name]
    *offsets, end = form.offsets(rows, cols)
    struct = ffi.new("struct kernels_matrix *")
    struct.format, struct.group, struct.rows, struct.cols = _NUMBERS[name], form.group, rows, cols
    struct.sections[0 : len(offsets)] = offsets
    return struct, end
