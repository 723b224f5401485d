"""Weight formats, each described once: its layout in bytes, its numpy encoder and decoder.

A packed matrix is one run of bytes. Formats with more than one section (codes, then scales) start every
section at a multiple of 64 bytes from the start of the run. Rows are stored one after another, row-major, as
[out, in]. This file is the index; the formats themselves are in `*_formats.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import UsageError
from uringinfer.kernels.block_formats import FP8, FP8_SMALL, MXFP4
from uringinfer.kernels.float_formats import BF16, F16, F32
from uringinfer.kernels.group_formats import Q4, Q4_G32, Q8, Q8_G32
from uringinfer.kernels.weight_format import Floats, WeightFormat

__all__ = ["FORMATS", "Weight", "WeightFormat", "decode", "decode_rows", "encode", "weight_format"]

FORMATS: dict[str, WeightFormat] = {
    entry.name: entry for entry in (BF16, F16, F32, FP8, *FP8_SMALL, Q8, Q8_G32, MXFP4, Q4, Q4_G32)
}
"""Every format by its name in the manifest and on the command line."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix [rows, cols] in packed form.

    `data` is uint8 [nbytes], contiguous, usually a view into the arena: it must not outlive its slot.
    """

    format: str
    rows: int
    cols: int
    data: NDArray[np.uint8]


def weight_format(name: str) -> WeightFormat:
    """The format called `name`. Raises UsageError, naming those that exist, if there is none."""
    try:
        return FORMATS[name]
    except KeyError:
        known = ", ".join(FORMATS)
        raise UsageError(f"'{name}' is no weight format", hint=f"choose one of {known}") from None


def encode(name: str, matrix: Floats) -> Weight:
    """Packs float32 [rows, cols] in the format `name`."""
    rows, cols = matrix.shape
    return Weight(name, rows, cols, weight_format(name).encode(matrix))


def decode(weight: Weight) -> Floats:
    """The whole matrix as float32 [rows, cols]."""
    return weight_format(weight.format).decode(weight.data, weight.rows, weight.cols)


def decode_rows(weight: Weight, ids: NDArray[np.int64]) -> Floats:
    """Rows `ids` [T] as float32 [T, cols]: an embedding lookup. Raises IndexError if there is no such row."""
    form = weight_format(weight.format)
    out = np.zeros((len(ids), weight.cols), np.float32)
    form.decode_into(form.split(weight.data, weight.rows, weight.cols), weight.cols, ids, out)
    return out
