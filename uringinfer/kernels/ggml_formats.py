"""The quantised types of ggml, each matrix byte for byte as a GGUF file has it.

A row is whole blocks, one after another; a block holds its scales, codes and signs in the order of ggml's
struct of that type. There is one section: the rows. Where a row's length is no multiple of the block, the
last block is there in full and its last columns mean nothing.

Decoding is left to the `gguf` package, a tile of rows at a time. Nothing here encodes: such matrices come out
of files, and `ENCODED` in `formats` leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from uringinfer.kernels.weight_format import Bytes, Floats, RowIndex, WeightFormat

if TYPE_CHECKING:
    from gguf.constants import GGMLQuantizationType

_TILE_WEIGHTS = 1 << 16
"""Weights that are decoded at once: the package's temporaries take up to fifty bytes for each."""

# ggml's name, weights and bytes of a block, weights that share a scale
# fmt: off
_TYPES = (
    ("q4_0", 32, 18, 32), ("q4_1", 32, 20, 32), ("q5_0", 32, 22, 32), ("q5_1", 32, 24, 32),
    ("q8_0", 32, 34, 32),
    ("q2_k", 256, 84, 16), ("q3_k", 256, 110, 16), ("q4_k", 256, 144, 32), ("q5_k", 256, 176, 32),
    ("q6_k", 256, 210, 16),
    ("iq2_xxs", 256, 66, 32), ("iq2_xs", 256, 74, 16), ("iq2_s", 256, 82, 16),
    ("iq3_xxs", 256, 98, 32), ("iq3_s", 256, 110, 32),
    ("iq1_s", 256, 50, 32), ("iq1_m", 256, 56, 16),
    ("iq4_nl", 32, 18, 32), ("iq4_xs", 256, 136, 32),
    ("tq1_0", 256, 54, 256), ("tq2_0", 256, 66, 256),
    ("mxfp4", 32, 17, 32), ("nvfp4", 64, 36, 16),
)
# fmt: on
_NAMES = {"mxfp4": "ggml_mxfp4"}
"""Where ggml's name is taken by a format with another layout."""


def _row_bytes(block: int, block_bytes: int, cols: int) -> int:
    return -(-cols // block) * block_bytes


def _sections(block: int, block_bytes: int, rows: int, cols: int) -> tuple[int, ...]:
    return (rows * _row_bytes(block, block_bytes, cols),)


def _decode(
    kind: str,
    block: int,
    block_bytes: int,
    sections: Sequence[Bytes],
    cols: int,
    index: RowIndex,
    out: Floats,
) -> None:
    type_, blocks = _ggml_type(kind), -(-cols // block)
    rows = sections[0].reshape(-1, blocks * block_bytes)
    if isinstance(index, slice):
        rows, index = rows[index], np.arange(len(rows[index]))
    step = max(1, _TILE_WEIGHTS // (blocks * block))
    for start in range(0, len(index), step):
        _decode_blocks(type_, rows[index[start : start + step]], block, out[start : start + step])


def _decode_blocks(kind: GGMLQuantizationType, rows: Bytes, block: int, out: Floats) -> None:
    """Rows of whole blocks -> out [rows, cols], a piece of a long row at a time."""
    from gguf.quants import dequantize  # takes a while to import

    blocks = -(-out.shape[1] // block)
    step, width = max(1, _TILE_WEIGHTS // block), rows.shape[1] // blocks
    for first in range(0, blocks, step):
        piece = rows[:, first * width : (first + step) * width]
        target = out[:, first * block : (first + step) * block]
        with np.errstate(all="ignore"):  # scales that are no numbers are the file's affair
            values = dequantize(np.ascontiguousarray(piece).reshape(1, -1), kind)
        target[...] = values.reshape(len(rows), -1)[:, : target.shape[1]]


def _ggml_type(kind: str) -> GGMLQuantizationType:
    from gguf.constants import GGMLQuantizationType

    return GGMLQuantizationType[kind.upper()]


def _format(kind: str, block: int, block_bytes: int, group: int) -> WeightFormat:
    name = _NAMES.get(kind, kind)
    return WeightFormat(
        name=name,
        bits_per_weight=8 * block_bytes / block,
        row_granularity=1,
        sections=partial(_sections, block, block_bytes),
        decode_into=partial(_decode, kind, block, block_bytes),
        group=group,
    )


GGML = tuple(_format(*entry) for entry in _TYPES)
"""Every quantised type of ggml up to NVFP4."""
FORMAT_OF_TYPE = {kind.upper(): _NAMES.get(kind, kind) for kind, *_ in _TYPES}
"""ggml's name of a type -> the format's."""
