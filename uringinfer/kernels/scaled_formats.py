"""Formats of quantised safetensors checkpoints whose scales have a scale, and FP8 scaled row by row.

nvfp4_times, nvfp4_over: codes as in mxfp4 [rows, ceil(cols / 2)]; then E4M3 scales [rows, ceil(cols / 16)];
then a float32 for each row, which the scales of the row are multiplied with, or divided by. Checkpoints
have one for a whole matrix; a row that knows its own can be read alone.

fp8_row: E4M3 codes [rows, cols]; then a float32 scale for each row. One for a whole matrix is given to
every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from uringinfer.kernels.block_formats import FP4_PAIRS, FP8_VALUES, decode_nibbles
from uringinfer.kernels.weight_format import Bytes, Floats, RowIndex, WeightFormat

NVFP4_GROUP = 16
_WHOLE_ROW = 1 << 30


def _nvfp4_sections(rows: int, cols: int) -> tuple[int, ...]:
    return (rows * -(-cols // 2), rows * -(-cols // NVFP4_GROUP), 4 * rows)


def _decode_nvfp4(divides: bool, sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
    codes = sections[0].reshape(-1, -(-cols // 2))[index]
    scales = FP8_VALUES[sections[1].reshape(-1, -(-cols // NVFP4_GROUP))[index]]
    factors = sections[2].view(np.float32)[index][:, None]
    with np.errstate(all="ignore"):  # factors that are no numbers are the file's affair
        scales = scales / factors if divides else scales * factors
    decode_nibbles(FP4_PAIRS, codes, scales, NVFP4_GROUP, out)


def _nvfp4_format(name: str, divides: bool) -> WeightFormat:
    return WeightFormat(
        name=name,
        bits_per_weight=4 + 8 / NVFP4_GROUP,
        row_granularity=1,
        sections=_nvfp4_sections,
        decode_into=partial(_decode_nvfp4, divides),
        group=NVFP4_GROUP,
    )


def _decode_fp8_row(sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
    with np.errstate(all="ignore"):
        factors = sections[1].view(np.float32)[index][:, None]
        np.multiply(FP8_VALUES[sections[0].reshape(-1, cols)[index]], factors, out=out)


NVFP4_TIMES = _nvfp4_format("nvfp4_times", divides=False)
NVFP4_OVER = _nvfp4_format("nvfp4_over", divides=True)
FP8_ROW = WeightFormat(
    name="fp8_row",
    bits_per_weight=8,
    row_granularity=1,
    sections=lambda rows, cols: (rows * cols, 4 * rows),
    decode_into=_decode_fp8_row,
    group=_WHOLE_ROW,
)
SCALED = (NVFP4_TIMES, NVFP4_OVER, FP8_ROW)
