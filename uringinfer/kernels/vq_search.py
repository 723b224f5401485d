"""The search behind vector quantisation: sums of centroids near given vectors, and whole matrices of them.

Natively where that is built, else in numpy; both find the same. `numpy_search` says how.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from uringinfer.environment import native_enabled
from uringinfer.kernels import numpy_search
from uringinfer.kernels.weight_format import Bytes, Floats


def best_sums(vectors: Floats, codebook: Floats) -> Bytes:
    """Which centroid of each stage of the codebook [stages, 256, 8] is in the sum for each of vectors [n, 8]
    -> [stages, n]."""
    found: Bytes = _implementation().best_sums(vectors, codebook)
    return found


def nearest(vectors: Floats, centroids: Floats) -> Bytes:
    """The number of the centroid [256, 8] nearest to each of vectors [n, 8]; the first of equals."""
    found: Bytes = best_sums(vectors, centroids[None])[0]
    return found


def encode_indices(matrix: Floats, scales: NDArray[np.float16], codebook: Floats) -> Bytes:
    """The indices of float32 [rows, cols] as they lie in a packed matrix (`vq_formats`): those of
    `best_sums` for its scaled vectors."""
    indices: Bytes = _implementation().encode_indices(matrix, scales, codebook)
    return indices


def _implementation() -> ModuleType:
    """The native search, if it is built and may be used, or numpy's."""
    if not native_enabled():
        return numpy_search
    try:
        from uringinfer.kernels import native_search  # late: it may not be built
    except ImportError:
        return numpy_search
    return native_search
