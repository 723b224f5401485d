"""Residual vector quantisation: vq3, vq2 and vq1, of three, two and one byte for eight weights.

A row is scaled by its largest magnitude and cut into vectors of 8 columns, the last one padded with zeros. A
vector is the sum of one centroid of each stage; an index of one byte says which of 256. The centroids, the
codebook, float32 [stages, 256, 8] whose values float16 holds, are shared by many matrices and lie elsewhere.

Indices uint8 in blocks of 128 rows (the last block has what is left): [block][position][stage][row of the
block]; then scales float16 [rows]. value = ((c0 + c1) + c2) * scale, in float32, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.group_formats import as_scale
from uringinfer.kernels.numpy_search import BLOCK_ROWS, CENTROIDS, DIMENSION
from uringinfer.kernels.vq_search import encode_indices
from uringinfer.kernels.weight_format import Bytes, Floats, RowIndex, WeightFormat, finite


def row_scales(matrix: Floats) -> NDArray[np.float16]:
    """The scale of each row of [rows, cols] -> [rows]: its largest magnitude."""
    return as_scale(np.abs(matrix).max(axis=1))


def _encode(matrix: Floats, codebook: Floats) -> tuple[Bytes, NDArray[np.float16]]:
    scales = row_scales(finite("vq", matrix))
    return encode_indices(matrix, scales, codebook), scales


def _blocks(indices: Bytes, rows: int, vectors: int) -> Iterator[tuple[int, Bytes]]:
    """(first row, indices [position and stage, row]) of each block."""
    for first in range(0, rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows - first)
        yield first, indices[first * vectors : (first + count) * vectors].reshape(vectors, count)


def _decode_into(stages: int, sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
    indices, scales = sections[0], sections[1].view(np.float16)
    codebook = sections[2].view(np.float32).reshape(stages, CENTROIDS, DIMENSION)
    positions = -(-cols // DIMENSION)
    wanted = np.arange(len(scales))[index]
    for first, block in _blocks(indices, len(scales), positions * stages):
        here = np.flatnonzero((wanted >= first) & (wanted < first + BLOCK_ROWS))
        if not len(here):
            continue
        chosen = block.reshape(positions, stages, -1)[:, :, wanted[here] - first]
        values = codebook[0][chosen[:, 0]]
        for stage in range(1, stages):
            values += codebook[stage][chosen[:, stage]]
        out[here] = values.transpose(1, 0, 2).reshape(len(here), -1)[:, :cols]
    out *= scales[index].astype(np.float32)[:, None]


def _sections(stages: int, rows: int, cols: int) -> tuple[int, ...]:
    return (rows * -(-cols // DIMENSION) * stages, 2 * rows)


def _vq_format(stages: int) -> WeightFormat:
    return WeightFormat(
        name=f"vq{stages}",
        bits_per_weight=float(stages),
        row_granularity=BLOCK_ROWS,
        sections=partial(_sections, stages),
        encode_sections=_encode,
        decode_into=partial(_decode_into, stages),
        stages=stages,
    )


VQ = tuple(_vq_format(stages) for stages in (3, 2, 1))
