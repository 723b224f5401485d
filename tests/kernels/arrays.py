"""Seeded random arrays, matrices packed quickly, and equality to the bit."""

import numpy as np

from uringinfer.kernels.formats import Weight, encode, weight_format


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def some_codebook(stages: int = 3, seed: int = 0) -> np.ndarray:
    return (normal(seed, stages, 256, 8) / 4).astype(np.float16).astype(np.float32)


def packed(name: str, matrix: np.ndarray, *, codebook_seed: int = 0) -> Weight:
    """The matrix in the format `name`, with a random codebook where it needs one: fitting one takes twenty
    times as long as finding the nearest sums in it, and a product is of whatever the matrix decodes to."""
    return encode(name, matrix, some_codebook(seed=codebook_seed) if weight_format(name).bind else None)


def assert_same_bits(one: np.ndarray, other: np.ndarray) -> None:
    np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
