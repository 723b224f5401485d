"""The search behind vector quantisation in numpy, in an order of operations that the native search keeps.

Both find the same, bit for bit, at every SIMD level.

To try all sums of centroids would take too long, and to take the nearest centroid stage after stage loses
what a farther one would have made possible: after each stage the `BEAM` nearest sums go on, after the last
the nearest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.weight_format import Bytes, Floats, in_groups

DIMENSION = 8
CENTROIDS = 256
STAGES = 3
BLOCK_ROWS = 128
BEAM = 4
"""Sums that go on from stage to stage. The native search has the same number."""

_VECTORS_AT_ONCE = 1 << 8
"""Their scores are a megabyte, which stays in a cache."""


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


def best_sums(vectors: Floats, codebook: Floats) -> Bytes:
    """`vq_search.best_sums`."""
    norms = half_norms(codebook)
    found = np.empty((len(codebook), len(vectors)), np.uint8)
    for start in range(0, len(vectors), _VECTORS_AT_ONCE):
        some = vectors[start : start + _VECTORS_AT_ONCE]
        found[:, start : start + len(some)] = _search(some, codebook, norms)
    return found


def encode_indices(matrix: Floats, scales: NDArray[np.float16], codebook: Floats) -> Bytes:
    """`vq_search.encode_indices`."""
    vectors = scaled_vectors(matrix, scales)
    rows, positions, _ = vectors.shape
    found = best_sums(vectors.reshape(-1, DIMENSION), codebook)
    stages = found.reshape(len(codebook), rows, positions)
    blocks = [stages[:, start : start + BLOCK_ROWS] for start in range(0, rows, BLOCK_ROWS)]
    return np.concatenate([block.transpose(2, 0, 1).reshape(-1) for block in blocks])


def _search(vectors: Floats, codebook: Floats, norms: Floats) -> Bytes:
    """`best_sums`. A sum's score is half the square of what it leaves of the vector, less half the vector's
    own."""
    rows = np.arange(len(vectors))[:, None]
    left, scores = vectors[:, None], np.zeros((len(vectors), 1), np.float32)
    chosen = np.zeros((len(codebook), len(vectors), 1), np.uint8)
    for stage, centroids in enumerate(codebook):
        longer = scores[:, :, None] + norms[stage]
        products = np.empty_like(longer)
        for j, dimension in enumerate(np.ascontiguousarray(centroids.T)):
            longer -= np.multiply(left[:, :, j, None], dimension, out=products)
        kept = BEAM if stage < len(codebook) - 1 else 1
        numbers, scores = _lowest(longer.reshape(len(vectors), -1), kept)
        sums, centroid = np.divmod(numbers, CENTROIDS)
        chosen = chosen[:, rows, sums]
        chosen[stage] = centroid
        left = left[rows, sums] - centroids[centroid]
    return chosen[:, :, 0]


def _lowest(scores: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
    """Where the `count` lowest of each row of [n, k] are, in order, the first of equals first, and what they
    are: [n, count] both. Overwrites them."""
    numbers = np.empty((len(scores), count), np.int64)
    values = np.empty((len(scores), count), np.float32)
    rows = np.arange(len(scores))
    for i in range(count):
        numbers[:, i] = scores.argmin(axis=1)
        values[:, i] = scores[rows, numbers[:, i]]
        scores[rows, numbers[:, i]] = np.inf
    return numbers, values
