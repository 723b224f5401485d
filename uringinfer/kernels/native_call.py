"""What calls into the native kernels need to know of a packed weight: its format's number, its sections.

Importing this module fails with ImportError where the extension was not built.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from uringinfer.kernels.formats import Weight, weight_format
from uringinfer.kernels.native_library import ffi, lib

_FORMATS = {
    "bf16": lib.KERNELS_BF16,
    "f16": lib.KERNELS_F16,
    "f32": lib.KERNELS_F32,
    "fp8": lib.KERNELS_FP8,
    "fp8_b64": lib.KERNELS_FP8_SMALL,
    "fp8_b32": lib.KERNELS_FP8_SMALL,
    "fp8_b16": lib.KERNELS_FP8_SMALL,
    "q8": lib.KERNELS_Q8,
    "q8_g32": lib.KERNELS_Q8_G32,
    "mxfp4": lib.KERNELS_MXFP4,
    "q4": lib.KERNELS_Q4,
    "q4_g32": lib.KERNELS_Q4_G32,
}
_LAYOUTS = {name: (number, weight_format(name).group) for name, number in _FORMATS.items()}


def layout(weight: Weight) -> tuple[int, int]:
    """The C enumeration's value of a weight's format, and the columns that share a scale."""
    return _LAYOUTS[weight.format]


def format_number(name: str) -> int:
    """The C enumeration's value of a format."""
    number: int = _LAYOUTS[name][0]
    return number


def sections(weight: Weight) -> tuple[Any, Any]:
    """Pointers to a packed matrix' codes and scales; NULL where the format has none.

    Raises ValueError if its bytes are not as many as its shape takes.
    """
    nbytes, scales = _places(weight.format, weight.rows, weight.cols)
    data = weight.data
    if data.dtype != np.uint8 or data.shape != (nbytes,):
        weight_format(weight.format).split(data, weight.rows, weight.cols)  # says what is wrong
    codes = ffi.from_buffer("char[]", data)
    return codes, ffi.NULL if scales is None else codes + scales


@lru_cache(maxsize=1024)
def _places(name: str, rows: int, cols: int) -> tuple[int, int | None]:
    """Bytes of a packed matrix, and where its scales begin; None if it has none."""
    offsets = weight_format(name).offsets(rows, cols)
    return offsets[-1], offsets[1] if len(offsets) > 2 else None
