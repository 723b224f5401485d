"""What every call into the native kernels needs: the module, pointers to arrays, numbers of formats.

Importing this module fails with ImportError where the extension was not built.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.formats import Weight, weight_format
from uringinfer.kernels.weight_format import Floats

# libgomp reads this once, when it is loaded. Its default, spinning between products, loses three quarters of
# the speed as soon as a neighbour wants a processor; measurements in docs/lessons.md.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from uringinfer.kernels._kernels import ffi, lib  # isort: skip

__all__ = ["ffi", "floats", "layout", "lib", "pointer", "sections"]

_FORMATS = {
    "bf16": lib.KERNELS_BF16,
    "f16": lib.KERNELS_F16,
    "f32": lib.KERNELS_F32,
    "fp8": lib.KERNELS_FP8,
    "fp8_b64": lib.KERNELS_FP8_SMALL,
    "fp8_b32": lib.KERNELS_FP8_SMALL,
    "fp8_b16": lib.KERNELS_FP8_SMALL,
    "q8": lib.KERNELS_Q8,
    "mxfp4": lib.KERNELS_MXFP4,
    "q4": lib.KERNELS_Q4,
    "q4_g32": lib.KERNELS_Q4_G32,
}


def pointer(ctype: str, array: NDArray[Any] | None) -> Any:
    """A pointer to the first element of a contiguous array; NULL for None. The caller keeps the array."""
    return ffi.NULL if array is None else ffi.cast(ctype, array.ctypes.data)


def floats(array: Floats | None) -> Any:
    """`pointer` for float32."""
    return pointer("float *", array)


def layout(weight: Weight) -> tuple[int, int]:
    """The C enumeration's value of a weight's format, and the columns that share a scale."""
    return _FORMATS[weight.format], weight_format(weight.format).group


def sections(weight: Weight) -> tuple[Any, Any]:
    """Pointers to a packed matrix' codes and scales; NULL where the format has none."""
    parts: list[NDArray[np.uint8]] = weight_format(weight.format).split(weight.data, weight.rows, weight.cols)
    return pointer("void *", parts[0]), pointer("void *", parts[1] if len(parts) > 1 else None)
