"""Numpy reference of multi-head latent attention over a compressed cache. The contracts stand at
`Kernels`."""

from __future__ import annotations

import numpy as np

from uringinfer.kernels.formats import Weight, decode_rows
from uringinfer.kernels.numpy_gates import softmax
from uringinfer.kernels.recurrent_checks import head_shapes, latent_shapes
from uringinfer.kernels.weight_format import Floats

SCORES_PER_BLOCK = 1 << 19
"""Scores of attention that are in memory at once, unless a single token has more."""


def matmul_heads(weight: Weight, x: Floats, *, offset: int, rows: int, transposed: bool) -> Floats:
    """Product of each head's x with its own block of rows, or with the block's transpose."""
    per_head, width = head_shapes(weight, x, offset, rows, transposed)
    tokens, heads, _ = x.shape
    output = np.empty((tokens, heads, width), np.float32)
    for head in range(heads):
        first = head * per_head + offset
        block = decode_rows(weight, np.arange(first, first + rows))  # [rows, n]
        output[:, head] = x[:, head] @ (block if transposed else block.T)
    return output


def latent_attention(q: Floats, cache: Floats, rank: int, start: int, scale: float) -> Floats:
    """Causal attention in latent space: one key for all heads, its first `rank` numbers are the value."""
    latent_shapes(q, cache, rank, start)
    tokens, heads, _ = q.shape
    output = np.empty((tokens, heads, rank), np.float32)
    block = max(1, SCORES_PER_BLOCK // (start + tokens))
    for first in range(0, tokens, block):
        last = min(first + block, tokens)
        seen = cache[: start + last]
        hidden = np.arange(start + last) > start + np.arange(first, last)[:, None]  # [t, positions]
        for head in range(heads):
            scores = (q[first:last, head] @ seen.T) * np.float32(scale)
            scores[hidden] = -np.inf
            output[first:last, head] = softmax(scores) @ seen[:, :rank]
    return output
