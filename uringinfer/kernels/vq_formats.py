"""Residual vector quantisation: vq3, of three bytes for eight weights.

A row is scaled by its largest magnitude and cut into vectors of 8 columns, the last one padded with zeros. A
vector is the sum of one centroid of each of three stages; an index of one byte says which of 256. The
centroids, the codebook, float32 [3, 256, 8] whose values float16 holds, are shared by many matrices and lie
elsewhere: `VQ3.bind` makes the format of those that share one.

Indices uint8 in blocks of 128 rows (the last block has what is left): [block][position][stage][row of the
block]; then scales float16 [rows]. value = ((c0 + c1) + c2) * scale, in float32, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.group_formats import as_scale
from uringinfer.kernels.numpy_search import BLOCK_ROWS, CENTROIDS, DIMENSION, STAGES
from uringinfer.kernels.vq_search import encode_indices
from uringinfer.kernels.weight_format import Bytes, Floats, RowIndex, WeightFormat, finite

CODEBOOK_SHAPE = (STAGES, CENTROIDS, DIMENSION)


def row_scales(matrix: Floats) -> NDArray[np.float16]:
    """The scale of each row of [rows, cols] -> [rows]: its largest magnitude."""
    return as_scale(np.abs(matrix).max(axis=1))


def _encode(codebook: Floats, matrix: Floats) -> tuple[Bytes, NDArray[np.float16]]:
    scales = row_scales(finite("vq", matrix))
    return encode_indices(matrix, scales, codebook), scales


def _blocks(indices: Bytes, rows: int, vectors: int) -> Iterator[tuple[int, Bytes]]:
    """(first row, indices [position and stage, row]) of each block."""
    for first in range(0, rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows - first)
        yield first, indices[first * vectors : (first + count) * vectors].reshape(vectors, count)


def _decode_into(
    codebook: Floats, sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats
) -> None:
    indices, scales = sections[0], sections[1].view(np.float16)
    positions = -(-cols // DIMENSION)
    wanted = np.arange(len(scales))[index]
    for first, block in _blocks(indices, len(scales), positions * STAGES):
        here = np.flatnonzero((wanted >= first) & (wanted < first + BLOCK_ROWS))
        if not len(here):
            continue
        chosen = block.reshape(positions, STAGES, -1)[:, :, wanted[here] - first]
        values = codebook[0][chosen[:, 0]]
        for stage in range(1, STAGES):
            values += codebook[stage][chosen[:, stage]]
        out[here] = values.transpose(1, 0, 2).reshape(len(here), -1)[:, :cols]
    out *= scales[index].astype(np.float32)[:, None]


def _sections(rows: int, cols: int) -> tuple[int, ...]:
    return (rows * -(-cols // DIMENSION) * STAGES, 2 * rows)


def _without_codebook(*_: object) -> NoReturn:
    raise ValueError("vq3 needs a codebook: bind one")


def _bind(codebook: Floats) -> WeightFormat:
    if codebook.dtype != np.float32 or codebook.shape != CODEBOOK_SHAPE:
        raise ValueError(f"vq3 needs a codebook, float32 {list(CODEBOOK_SHAPE)}, not {codebook.shape}")
    codebook = np.ascontiguousarray(codebook)
    return replace(
        VQ3,
        encode_sections=partial(_encode, codebook),
        decode_into=partial(_decode_into, codebook),
        codebook=codebook,
    )


VQ3 = WeightFormat(
    name="vq3",
    bits_per_weight=8 * STAGES / DIMENSION,
    row_granularity=BLOCK_ROWS,
    sections=_sections,
    encode_sections=_without_codebook,
    decode_into=_without_codebook,
    bind=_bind,
)
