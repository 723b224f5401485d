"""Plain floats: bf16, f16 and f32, little-endian, row-major, one section."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.weight_format import Bytes, Floats, RowIndex, WeightFormat


def bf16_from_f32(values: Floats) -> NDArray[np.uint16]:
    """float32 -> the bits of bfloat16, rounded to nearest, ties to even; a NaN stays a (quiet) NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))) >> np.uint32(16)
    quiet = bits >> np.uint32(16) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def _f16_from_f32(values: Floats) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):  # beyond 65504 lies infinity, as in every conversion to f16
        return values.astype(np.float16)


def _decode_bf16(sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
    # The lower halves of `out` are zero already: writing the upper ones alone is 4 times as fast as shifting.
    out.view(np.uint16)[:, 1::2] = sections[0].view(np.uint16).reshape(-1, cols)[index]


def _decode_f16(sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
    out[...] = sections[0].view(np.float16).reshape(-1, cols)[index]


def _decode_f32(sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
    out[...] = sections[0].view(np.float32).reshape(-1, cols)[index]


BF16 = WeightFormat(
    name="bf16",
    bits_per_weight=16,
    row_granularity=1,
    sections=lambda rows, cols: (rows * cols * 2,),
    encode_sections=lambda matrix: (bf16_from_f32(matrix),),
    decode_into=_decode_bf16,
)
F16 = WeightFormat(
    name="f16",
    bits_per_weight=16,
    row_granularity=1,
    sections=lambda rows, cols: (rows * cols * 2,),
    encode_sections=lambda matrix: (_f16_from_f32(matrix),),
    decode_into=_decode_f16,
)
F32 = WeightFormat(
    name="f32",
    bits_per_weight=32,
    row_granularity=1,
    sections=lambda rows, cols: (rows * cols * 4,),
    encode_sections=lambda matrix: (matrix,),
    decode_into=_decode_f32,
)
