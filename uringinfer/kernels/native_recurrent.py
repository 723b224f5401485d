"""The native gates, recurrent states and latent attention: the part of `NativeKernels` that such layers
need."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from uringinfer.kernels import recurrent_checks as checks
from uringinfer.kernels.checks import dense
from uringinfer.kernels.float_formats import F32
from uringinfer.kernels.formats import Weight, decode
from uringinfer.kernels.native_call import has_products, packed
from uringinfer.kernels.native_library import ffi, floats, lib
from uringinfer.kernels.weight_format import Floats


class NativeRecurrent:
    """Functions of `Kernels` in C; whoever inherits them sets the level and the number of threads."""

    threads: int
    _level: int

    def latent_attention(self, q: Floats, cache: Floats, rank: int, start: int, scale: float) -> Floats:
        """See `Kernels.latent_attention`."""
        checks.latent_shapes(q, cache, rank, start)
        tokens, heads, width = q.shape
        out = np.empty((tokens, heads, rank), np.float32)
        lib.kernels_latent_attention(
            self._level,
            self.threads,
            tokens,
            heads,
            len(cache),
            width,
            rank,
            start,
            scale,
            floats(q),
            floats(cache),
            floats(out),
        )
        return out

    def matmul_heads(self, weight: Weight, x: Floats, *, offset: int, rows: int, transposed: bool) -> Floats:
        """See `Kernels.matmul_heads`."""
        _, width = checks.head_shapes(weight, x, offset, rows, transposed)
        if not has_products(weight.format):
            decoded = decode(weight).reshape(-1).view(np.uint8)
            weight = Weight(F32, weight.rows, weight.cols, decoded)
        tokens, heads, _ = x.shape
        out = np.empty((tokens, heads, width), np.float32)
        multiply = lib.kernels_matmul_heads_transposed if transposed else lib.kernels_matmul_heads
        status = multiply(
            self._level,
            self.threads,
            *packed(weight),
            heads,
            offset,
            rows,
            tokens,
            floats(x),
            floats(out),
        )
        _check(status)
        return out

    def causal_conv(self, x: Floats, history: Floats, taps: Floats) -> Floats:
        """See `Kernels.causal_conv`."""
        checks.conv_shapes(x, history, taps)
        out = np.empty_like(x)
        lib.kernels_causal_conv(
            self._level,
            self.threads,
            *x.shape,
            taps.shape[1],
            floats(x),
            floats(history),
            floats(taps),
            floats(out),
        )
        return out

    def l2_norm(self, x: Floats, eps: float, scale: float = 1.0) -> Floats:
        """See `Kernels.l2_norm`."""
        out = np.empty_like(dense("x", x))
        rows, cols = _rows(x)
        lib.kernels_l2_norm(self._level, self.threads, rows, cols, floats(x), eps, scale, floats(out))
        return out

    def forget_gate(self, z: Floats, bias: Floats, rate: Floats, lower_bound: float | None) -> Floats:
        """See `Kernels.forget_gate`."""
        checks.gate_shapes(z, bias, rate)
        out = np.empty_like(z)
        lib.kernels_forget_gate(
            self._level,
            self.threads,
            *z.shape,
            floats(z),
            floats(bias),
            floats(rate),
            lower_bound is not None,
            lower_bound or 0.0,
            floats(out),
        )
        return out

    def delta_rule(
        self, q: Floats, k: Floats, v: Floats, beta: Floats, decay: Floats, state: Floats
    ) -> Floats:
        """See `Kernels.delta_rule`."""
        checks.delta_shapes(q, k, v, beta, decay, state)
        out = np.empty_like(v)
        arrays = (q, k, v, beta, decay, state, out)
        lib.kernels_delta_rule(self._level, self.threads, len(q), *state.shape, *map(floats, arrays))
        return out

    def sigmoid(self, x: Floats) -> Floats:
        """See `Kernels.sigmoid`."""
        out = np.empty_like(dense("x", x))
        lib.kernels_sigmoid(self._level, self.threads, x.size, floats(x), floats(out))
        return out

    def softmax(self, x: Floats) -> Floats:
        """See `Kernels.softmax`."""
        out = np.empty_like(dense("x", x))
        lib.kernels_softmax(self._level, self.threads, *_rows(x), floats(x), floats(out))
        return out

    def attention_residual(self, sources: Sequence[Floats], query: Floats, eps: float) -> Floats:
        """See `Kernels.attention_residual`."""
        checks.source_shapes(sources, query)
        out = np.empty_like(sources[0])
        pointers = ffi.new("float *[]", [floats(source) for source in sources])
        status = lib.kernels_attention_residual(
            self._level, self.threads, len(sources), *out.shape, pointers, floats(query), eps, floats(out)
        )
        _check(status)
        return out


def _rows(x: Floats) -> tuple[int, int]:
    """x as rows along its last axis."""
    cols = x.shape[-1]
    return (x.size // cols if cols else 0), cols


def _check(status: int) -> None:
    if status < 0:
        raise MemoryError(os.strerror(-status))
