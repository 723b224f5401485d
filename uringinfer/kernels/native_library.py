"""The compiled module, its SIMD levels, and pointers to arrays for its functions. Knows nothing of formats.

Importing this module fails with ImportError where the extension was not built.
"""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray

from uringinfer.kernels.weight_format import Floats

# libgomp reads this once, when it is loaded. Its default, spinning between products, loses three quarters of
# the speed as soon as a neighbour wants a processor; measurements in docs/lessons.md.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from uringinfer.kernels._kernels import ffi, lib  # isort: skip

__all__ = ["LEVELS", "ffi", "floats", "lib", "pointer", "strided_floats", "supported_levels"]

LEVELS = {"avx512": lib.KERNELS_AVX512, "avx2": lib.KERNELS_AVX2, "portable": lib.KERNELS_PORTABLE}
"""SIMD levels, best first."""


def supported_levels() -> list[str]:
    """The SIMD levels that this machine can run, best first."""
    return [name for name, level in LEVELS.items() if lib.kernels_simd_supported(level)]


def pointer(ctype: str, array: NDArray[Any] | None) -> Any:
    """A pointer to the first element of a contiguous array, as `ctype` ("float[]"); NULL for None.

    It keeps the array alive. Going through numpy's own `ctypes` would take ten times as long.
    """
    return ffi.NULL if array is None else ffi.from_buffer(ctype, array)


def floats(array: Floats | None) -> Any:
    """`pointer` for float32."""
    return ffi.NULL if array is None else ffi.from_buffer("float[]", array)


def strided_floats(array: Floats) -> Any:
    """A pointer to the first element of a float32 array whose rows may be apart. The caller keeps the
    array."""
    return floats(array) if array.flags.c_contiguous else ffi.cast("float *", array.ctypes.data)
