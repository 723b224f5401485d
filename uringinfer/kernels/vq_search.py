"""The search behind vector quantisation: the nearest of 256 centroids, for single vectors and whole matrices.

Written here in numpy, in an order of operations that the native search keeps: both find the same, bit for
bit, at every SIMD level. The native one is a hundred times faster and is used where it is built.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from uringinfer.environment import native_enabled
from uringinfer.kernels.weight_format import Bytes, Floats, in_groups

DIMENSION = 8
CENTROIDS = 256
BLOCK_ROWS = 128

_VECTORS_AT_ONCE = 1 << 12


def half_norms(centroids: Floats) -> Floats:
    """Half of each centroid's squared length: [..., 8] -> [...], dimension after dimension."""
    total = np.zeros(centroids.shape[:-1], np.float32)
    for j in range(DIMENSION):
        total += centroids[..., j] * centroids[..., j]
    return total * np.float32(0.5)


def scaled_vectors(matrix: Floats, scales: NDArray[np.float16]) -> Floats:
    """[rows, cols] -> [rows, ceil(cols / 8), 8]: every row divided by its scale; a row of scale 0 is zero."""
    divisor = np.where(scales > 0, scales, np.float16(1)).astype(np.float32)
    return in_groups(np.where(scales[:, None] > 0, matrix / divisor[:, None], np.float32(0)), DIMENSION)


def nearest(vectors: Floats, centroids: Floats) -> NDArray[np.uint8]:
    """The number of the centroid [256, 8] nearest to each of vectors [n, 8]; the first of equals."""
    native = _native()
    return numpy_nearest(vectors, centroids) if native is None else native.nearest(vectors, centroids)


def encode_indices(matrix: Floats, scales: NDArray[np.float16], codebook: Floats) -> Bytes:
    """The indices of float32 [rows, cols] as they lie in a packed matrix (`vq_formats`): stage after stage,
    the centroid nearest to what the stages before it leave."""
    native = _native()
    chosen = numpy_encode_indices if native is None else native.encode_indices
    indices: Bytes = chosen(matrix, scales, codebook)
    return indices


def numpy_nearest(vectors: Floats, centroids: Floats) -> NDArray[np.uint8]:
    """`nearest` in numpy."""
    norms = half_norms(centroids)
    found = np.empty(len(vectors), np.uint8)
    for start in range(0, len(vectors), _VECTORS_AT_ONCE):
        some = vectors[start : start + _VECTORS_AT_ONCE]
        score = np.repeat(norms[None], len(some), axis=0)
        for j in range(DIMENSION):
            score -= some[:, j, None] * centroids[None, :, j]
        found[start : start + len(some)] = score.argmin(axis=1)
    return found


def numpy_encode_indices(matrix: Floats, scales: NDArray[np.float16], codebook: Floats) -> Bytes:
    """`encode_indices` in numpy."""
    left = scaled_vectors(matrix, scales)
    rows, positions, _ = left.shape
    left = left.reshape(-1, DIMENSION)
    stages = np.empty((len(codebook), rows, positions), np.uint8)
    for number, centroids in enumerate(codebook):
        found = numpy_nearest(left, centroids)
        stages[number] = found.reshape(rows, positions)
        left = left - centroids[found]
    blocks = [stages[:, start : start + BLOCK_ROWS] for start in range(0, rows, BLOCK_ROWS)]
    return np.concatenate([block.transpose(2, 0, 1).reshape(-1) for block in blocks])


def _native() -> ModuleType | None:
    """The native search, if it is built and may be used."""
    if not native_enabled():
        return None
    try:
        from uringinfer.kernels import native_vq  # late: it needs what is built from this module
    except ImportError:
        return None
    return native_vq
