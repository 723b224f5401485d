"""Integers with one scale for a group of columns: q8, q4 and q4_g32.

q8: codes int8 [rows, cols]; then scales float16 [rows, ceil(cols / 128)], or groups of 32 in q8_g32. value =
code * scale; the scale is the group's largest magnitude / 127.

q4: codes uint8 [rows, ceil(cols / 2)], the low nibble is the even column; then scales float16
[rows, ceil(cols / 128)], or groups of 32 in q4_g32. value = (code - 8) * scale; the scale takes the sign that
gives the group's largest magnitude the code 0, so that the range of codes is used whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.block_formats import decode_nibbles, pack_nibbles
from uringinfer.kernels.weight_format import Bytes, Floats, RowIndex, WeightFormat, finite, in_groups

_INT4_VALUES = np.arange(-8, 8, dtype=np.float32)
_INT4_PAIRS = np.stack([np.tile(_INT4_VALUES, 16), np.repeat(_INT4_VALUES, 16)], axis=1).view(np.uint64)[:, 0]
_SMALLEST = np.float32(2.0**-24)
_LARGEST = np.float32(65504)


def as_scale(values: Floats) -> NDArray[np.float16]:
    """float16 scales; what is not zero does not become zero, what is large does not become infinite."""
    magnitude = np.clip(np.abs(values), _SMALLEST, _LARGEST)
    scales: NDArray[np.float16] = np.where(values == 0, 0, np.copysign(magnitude, values)).astype(np.float16)
    return scales


def _codes(groups: Floats, scales: NDArray[np.float16], low: int, high: int) -> Floats:
    """groups [rows, n, group] / scales [rows, n], rounded to whole numbers from low to high."""
    divisor = np.where(scales == 0, np.float16(1), scales).astype(np.float32)[:, :, None]
    codes: Floats = np.clip(np.rint(groups / divisor), low, high)
    return codes


def _encode_q8(name: str, group: int, matrix: Floats) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    groups = in_groups(finite(name, matrix), group)
    scales = as_scale(np.abs(groups).max(axis=2) / np.float32(127))
    codes = _codes(groups, scales, -127, 127).astype(np.int8).reshape(len(matrix), -1)
    return codes[:, : matrix.shape[1]], scales


def _decode_q8(group: int, sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
    codes = sections[0].view(np.int8).reshape(-1, cols)[index]
    scales = sections[1].view(np.float16).reshape(-1, -(-cols // group))[index].astype(np.float32)
    np.multiply(codes, np.repeat(scales, group, axis=1)[:, :cols], out=out)


def _q8_sections(group: int, rows: int, cols: int) -> tuple[int, ...]:
    return (rows * cols, 2 * rows * -(-cols // group))


def _q8_format(name: str, group: int) -> WeightFormat:
    return WeightFormat(
        name=name,
        bits_per_weight=8 + 16 / group,
        row_granularity=1,
        sections=partial(_q8_sections, group),
        encode_sections=partial(_encode_q8, name, group),
        decode_into=partial(_decode_q8, group),
        group=group,
    )


def _encode_q4(name: str, group: int, matrix: Floats) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
    groups = in_groups(finite(name, matrix), group)
    where = np.abs(groups).argmax(axis=2)[:, :, None]
    scales = as_scale(np.take_along_axis(groups, where, axis=2)[:, :, 0] / np.float32(-8))
    codes = (_codes(groups, scales, -8, 7) + 8).astype(np.uint8).reshape(len(matrix), -1)
    return pack_nibbles(codes[:, : matrix.shape[1]]), scales


def _decode_q4(group: int, sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
    codes = sections[0].reshape(-1, -(-cols // 2))[index]
    scales = sections[1].view(np.float16).reshape(-1, -(-cols // group))[index].astype(np.float32)
    decode_nibbles(_INT4_PAIRS, codes, scales, group, out)


def _q4_sections(group: int, rows: int, cols: int) -> tuple[int, ...]:
    return (rows * -(-cols // 2), 2 * rows * -(-cols // group))


def _q4_format(name: str, group: int) -> WeightFormat:
    return WeightFormat(
        name=name,
        bits_per_weight=4 + 16 / group,
        row_granularity=1,
        sections=partial(_q4_sections, group),
        encode_sections=partial(_encode_q4, name, group),
        decode_into=partial(_decode_q4, group),
        group=group,
    )


Q8 = _q8_format("q8", 128)
Q8_G32 = _q8_format("q8_g32", 32)
Q4 = _q4_format("q4", 128)
Q4_G32 = _q4_format("q4_g32", 32)
