"""Numpy reference of the small functions around gates and softmax. The contracts stand at `Kernels`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uringinfer.kernels.recurrent_checks import source_shapes
from uringinfer.kernels.weight_format import Floats


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), without overflow at either end."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, np.float32(1), small) / (np.float32(1) + small), np.float32)


def softmax(x: Floats) -> Floats:
    """Softmax over the last axis."""
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    value: Floats = exponentials / exponentials.sum(axis=-1, keepdims=True, dtype=np.float32)
    return value


def attention_residual(sources: Sequence[Floats], query: Floats, eps: float) -> Floats:
    """Each token's attention over its own sources: normed ones are scored, raw ones are mixed."""
    source_shapes(sources, query)
    stacked = np.stack(sources)  # [S, T, E]
    mean_square = np.mean(np.square(stacked), axis=-1, dtype=np.float32)
    scores = np.sum(stacked * query, axis=-1, dtype=np.float32) / np.sqrt(mean_square + np.float32(eps))
    shares = np.exp(scores - scores.max(axis=0))
    shares /= shares.sum(axis=0, dtype=np.float32)
    mixed = np.zeros_like(sources[0])
    for source, share in zip(sources, shares, strict=True):
        mixed += share[:, None] * source
    return mixed
