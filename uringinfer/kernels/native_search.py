"""The search behind vector quantisation through the native kernels: `numpy_search`, tens of times faster.

Importing this module fails with ImportError where the extension was not built.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.cpus import usable_cpus
from uringinfer.kernels.native_library import LEVELS, floats, lib, pointer, supported_levels
from uringinfer.kernels.numpy_search import DIMENSION, half_norms
from uringinfer.kernels.weight_format import Bytes, Floats


def best_sums(vectors: Floats, codebook: Floats, level: int | None = None) -> Bytes:
    """`vq_search.best_sums`, on every processor that this process may use."""
    vectors, codebook = np.ascontiguousarray(vectors), np.ascontiguousarray(codebook)
    norms = half_norms(codebook)
    chosen = np.empty((len(codebook), len(vectors)), np.uint8)
    lib.kernels_vq_search(
        _best_level() if level is None else level,
        usable_cpus(),
        len(codebook),
        len(vectors),
        floats(vectors),
        floats(codebook),
        floats(norms),
        pointer("unsigned char[]", chosen),
    )
    return chosen


def encode_indices(
    matrix: Floats,
    scales: NDArray[np.float16],
    codebook: Floats,
    level: int | None = None,
    threads: int = 1,
) -> Bytes:
    """`vq_search.encode_indices`. One thread: who packs runs several of these at once."""
    rows, cols = matrix.shape
    matrix, factors = np.ascontiguousarray(matrix), scales.astype(np.float32)
    codebook = np.ascontiguousarray(codebook)
    norms = half_norms(codebook)
    indices = np.empty(rows * -(-cols // DIMENSION) * len(codebook), np.uint8)
    lib.kernels_vq_encode(
        _best_level() if level is None else level,
        threads,
        len(codebook),
        rows,
        cols,
        floats(matrix),
        floats(factors),
        floats(codebook),
        floats(norms),
        pointer("unsigned char[]", indices),
    )
    return indices


def _best_level() -> int:
    return int(LEVELS[supported_levels()[0]])
