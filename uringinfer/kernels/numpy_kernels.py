"""The kernels in numpy: the reference for the native ones, and what runs where nothing could be compiled.

Products decode a tile of rows into one float32 buffer and leave the arithmetic to BLAS. BLAS may add in
another order when the number of tokens changes, so here the same token can differ in its last bits between
chunk sizes; everything else repeats exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels import checks, numpy_gates, numpy_latent, numpy_recurrent
from uringinfer.kernels.contract import SharedTables, Tables
from uringinfer.kernels.formats import Weight
from uringinfer.kernels.gated_network import GatedNetwork
from uringinfer.kernels.networks import one_by_one
from uringinfer.kernels.numpy_latent import SCORES_PER_BLOCK
from uringinfer.kernels.weight_format import Floats, WeightFormat

TILE_ROWS = 64
"""Rows decoded at a time: the tile stays in the second-level cache between decoding and product."""

_SCORE_COPIES = 6
"""Arrays of scores that attention has at once, at most."""
DECODING = 8
"""Times a tile's own memory that a decoder takes, with the tile."""
_TEMPORARIES = 2
"""Times its arguments and its result that a function takes for what stands between them."""
_SMALL = 1 << 16
_GELU = np.float32(np.sqrt(2 / np.pi))


class NumpyKernels:
    """`Kernels` in numpy. The threads are BLAS's own; `notes` is what `open_kernels` has to say."""

    name = "numpy"
    simd = "numpy"

    latent_attention = staticmethod(numpy_latent.latent_attention)
    matmul_heads = staticmethod(numpy_latent.matmul_heads)
    causal_conv = staticmethod(numpy_recurrent.causal_conv)
    l2_norm = staticmethod(numpy_recurrent.l2_norm)
    forget_gate = staticmethod(numpy_recurrent.forget_gate)
    delta_rule = staticmethod(numpy_recurrent.delta_rule)
    sigmoid = staticmethod(numpy_gates.sigmoid)
    softmax = staticmethod(numpy_gates.softmax)
    attention_residual = staticmethod(numpy_gates.attention_residual)

    def __init__(self, threads: int = 1, notes: list[str] | None = None) -> None:
        self.threads = threads
        self.notes = notes if notes is not None else []

    def tables(self, weight: Weight, x: Floats) -> None:
        """See `Kernels.tables`. A decoded tile of weights has nothing to share."""

    def product_bytes(
        self, form: WeightFormat, rows: int, cols: int, tokens: int = 1, *, by_heads: bool = False
    ) -> int:
        """See `Kernels.product_bytes`."""
        decoded = rows if by_heads else min(TILE_ROWS, rows)
        product = max(decoded, cols) if by_heads else decoded
        return DECODING * 4 * decoded * cols + 8 * tokens * product + _SMALL

    def function_bytes(self, nbytes: int) -> int:
        """See `Kernels.function_bytes`."""
        return _TEMPORARIES * nbytes + _SCORE_COPIES * 4 * SCORES_PER_BLOCK + _SMALL

    def matmul(
        self, weight: Weight, x: Floats, out: Floats | None = None, *, tables: Tables | None = None
    ) -> Floats:
        """See `Kernels.matmul`."""
        out = checks.matmul_output(weight, x, out)
        form, sections = weight.format, weight.sections()
        buffer = np.zeros((min(TILE_ROWS, weight.rows), weight.cols), np.float32)
        for start in range(0, weight.rows, TILE_ROWS):
            stop = min(start + TILE_ROWS, weight.rows)
            tile = buffer[: stop - start]
            form.decode_into(sections, weight.cols, slice(start, stop), tile)
            if len(x) == 1:
                out[0, start:stop] = tile @ x[0]
            else:
                out[:, start:stop] = x @ tile.T
        return out

    def rms_norm(self, x: Floats, weight: Floats | None, eps: float) -> Floats:
        """See `Kernels.rms_norm`."""
        checks.norm_weight(x, weight)
        normed: Floats = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps))
        return normed if weight is None else normed * weight

    def rotary(self, x: Floats, cos: Floats, sin: Floats, *, interleaved: bool = False) -> None:
        """See `Kernels.rotary`."""
        rotated = checks.rotary_shapes(x, cos, sin)
        if interleaved:
            first, second = x[:, :, 0:rotated:2], x[:, :, 1:rotated:2]
        else:
            first, second = x[:, :, : rotated // 2], x[:, :, rotated // 2 : rotated]
        cos, sin = cos[:, None, :], sin[:, None, :]
        turned = first * cos - second * sin
        second[...] = second * cos + first * sin
        first[...] = turned

    def gated(self, kind: str, gate: Floats, up: Floats, *, limit: float = 0.0, alpha: float = 1.0) -> Floats:
        """See `Kernels.gated`."""
        checks.gated_shapes(kind, gate, up)
        if kind == "silu":
            return gate * _sigmoid(gate) * up
        if kind == "gelu_tanh":
            inner = _GELU * (gate + np.float32(0.044715) * gate * gate * gate)
            gate = np.float32(0.5) * gate * (1 + np.tanh(inner))
            return gate * up
        if kind == "swiglu_oai":
            gate = np.minimum(gate, np.float32(limit))
            up = np.clip(up, np.float32(-limit), np.float32(limit))
            return gate * _sigmoid(np.float32(alpha) * gate) * (up + 1)
        return _capped(gate, alpha) * _sigmoid(gate) * _capped(up, limit)

    def gated_networks(
        self,
        networks: Sequence[GatedNetwork],
        inputs: Sequence[Floats],
        kind: str,
        *,
        limit: float = 0.0,
        alpha: float = 1.0,
        shared: SharedTables | None = None,
    ) -> Floats:
        """See `Kernels.gated_networks`."""
        checks.gated_networks(kind, networks, inputs)
        activation = partial(self.gated, kind, limit=limit, alpha=alpha)
        return one_by_one(self, networks, inputs, activation, shared)

    def attention(
        self,
        q: Floats,
        keys: Floats,
        values: Floats,
        start: int,
        scale: float,
        *,
        window: int = 0,
        sinks: Floats | None = None,
    ) -> Floats:
        """See `Kernels.attention`."""
        checks.attention_shapes(q, keys, values, start, sinks)
        tokens, heads, _ = q.shape
        groups, _, value_size = values.shape
        shared = heads // groups
        out = np.empty((tokens, heads, value_size), np.float32)
        block = max(1, SCORES_PER_BLOCK // (shared * (start + tokens)))
        for first in range(0, tokens, block):
            last = min(first + block, tokens)
            end = start + last
            begin = max(0, start + first - window + 1) if window > 0 else 0
            hidden = _hidden(start + np.arange(first, last), np.arange(begin, end), window)
            for group in range(groups):
                mine = slice(group * shared, (group + 1) * shared)
                scores = np.einsum("thd,cd->htc", q[first:last, mine], keys[group, begin:end], optimize=True)
                scores = np.where(hidden, np.float32(-np.inf), scores * np.float32(scale))
                weights = _softmax(scores, None if sinks is None else sinks[mine, None, None])
                out[first:last, mine] = np.swapaxes(weights @ values[group, begin:end], 0, 1)
        return out


def _sigmoid(x: Floats) -> Floats:
    with np.errstate(over="ignore"):  # exp(-x) = inf is right: the sigmoid is 0 there
        return np.float32(1) / (np.float32(1) + np.exp(-x))


def _capped(x: Floats, bound: float) -> Floats:
    return np.asarray(np.float32(bound) * np.tanh(x / np.float32(bound)), np.float32)


def _hidden(queries: NDArray[np.int64], positions: NDArray[np.int64], window: int) -> NDArray[np.bool_]:
    """[T, C] true where query t must not see position c."""
    behind = queries[:, None] - positions[None, :]
    return (behind < 0) | (behind >= window) if window > 0 else behind < 0


def _softmax(scores: Floats, sinks: Floats | None) -> Floats:
    """Softmax of scores [H, T, C] over C; sinks [H, 1, 1] are one more logit, which takes its share."""
    largest = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        largest = np.maximum(largest, sinks)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - largest)
    return np.asarray(weights / total, np.float32)
