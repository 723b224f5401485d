"""Fitting the codebooks of vq3: k-means on a sample, stage after stage, then all together.

Everything is a function of the sample and the seed alone: the native search and numpy's find the same, sums
are taken in float64 in the order of the sample, and neither threads nor jobs show. A stage is fitted to what
the rounded stages before it leave; then, in joint rounds, to what all others leave of the sums that the
encoder would choose.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.numpy_search import CENTROIDS, DIMENSION, STAGES, scaled_vectors
from uringinfer.kernels.vq_formats import row_scales
from uringinfer.kernels.vq_search import best_sums, nearest
from uringinfer.kernels.weight_format import Bytes, Floats

SAMPLE_VECTORS = 1 << 16
"""Vectors to fit to: 256 for each centroid. More change the error in its third digit."""
ROUNDS = 32
"""Rounds of k-means for a stage. On matrices of SmolLM2 the error is 1 % smaller than after 16, twice as many
would save another half per cent."""
JOINT_ROUNDS = 8
"""Rounds of fitting all stages together. On Gaussian weights the error of vq3 goes from 16.9 % to 16.2 %, in
twice as many it would go to 16.0 %."""


def sample_vectors(matrix: Floats) -> Floats:
    """The scaled vectors of float32 [rows, cols] -> [n, 8], without those that are zero through and through,
    of which there is nothing to learn."""
    vectors = scaled_vectors(matrix, row_scales(matrix)).reshape(-1, DIMENSION)
    return vectors[vectors.any(axis=1)]


def fit_codebook(vectors: Floats, seed: int = 0) -> Floats:
    """A codebook [3, 256, 8] for scaled vectors [n, 8], its values rounded to float16.

    At most `SAMPLE_VECTORS` of them, drawn by the seed, are looked at. Without any, all centroids are zero.
    """
    rng = np.random.default_rng(seed)
    sample = vectors[np.sort(rng.permutation(len(vectors))[:SAMPLE_VECTORS])]
    codebook = np.zeros((STAGES, CENTROIDS, DIMENSION), np.float32)
    left = sample
    for centroids in codebook:
        centroids[:] = _fit_stage(left, rng)
        left = left - centroids[nearest(left, centroids)]
    for _ in range(JOINT_ROUNDS):
        _fit_together(sample, codebook)
    return codebook


def _fit_stage(vectors: Floats, rng: np.random.Generator) -> Floats:
    """256 centroids, in an order that means nothing; those that a small sample has no use for are zero."""
    centroids = np.zeros((CENTROIDS, DIMENSION), np.float32)
    start = vectors[rng.permutation(len(vectors))[:CENTROIDS]]
    centroids[: len(start)] = start
    for _ in range(ROUNDS):
        found = nearest(vectors, centroids)
        counts = _move_to_means(vectors, centroids, found)
        _move_unused(vectors, centroids, found, counts)
    return _rounded(centroids)


def _fit_together(vectors: Floats, codebook: Floats) -> None:
    """Moves the centroids of one stage after the other to where they serve best, the others being as they
    are, the sums that the encoder finds for `vectors` being kept."""
    chosen = best_sums(vectors, codebook)
    left = vectors
    for centroids, found in zip(codebook, chosen, strict=True):
        left = left - centroids[found]
    for centroids, found in zip(codebook, chosen, strict=True):
        wanted = left + centroids[found]
        _move_to_means(wanted, centroids, found)
        centroids[:] = _rounded(centroids)
        left = wanted - centroids[found]


def _move_to_means(vectors: Floats, centroids: Floats, found: Bytes) -> NDArray[np.int64]:
    """Puts each centroid at the mean of the vectors that found it, and counts them; one without stays."""
    counts = np.bincount(found, minlength=CENTROIDS)
    for j in range(DIMENSION):
        sums = np.bincount(found, vectors[:, j], minlength=CENTROIDS)
        centroids[:, j] = np.where(counts > 0, sums / np.maximum(counts, 1), centroids[:, j])
    return counts


def _move_unused(vectors: Floats, centroids: Floats, found: Bytes, counts: NDArray[np.int64]) -> None:
    """Puts centroids that are nobody's nearest where the worst served vectors are."""
    unused = np.flatnonzero(counts == 0)
    if len(unused):
        off = vectors - centroids[found]
        errors = (off * off).sum(axis=1)
        worst = np.argsort(-errors, kind="stable")[: len(unused)]
        centroids[unused[: len(worst)]] = vectors[worst]


def _rounded(centroids: Floats) -> Floats:
    return centroids.astype(np.float16).astype(np.float32)
