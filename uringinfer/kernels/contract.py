"""What kernels are: the functions that layers are built from.

Two implementations keep the same contract: `native_kernels.NativeKernels` and `numpy_kernels.NumpyKernels`.
Every array is float32 and C-contiguous unless a docstring says otherwise; what does not fit raises
ValueError.

The native kernels accumulate each output element in an order that depends on neither the number of tokens in
a call nor the number of threads: T tokens at once give, bit for bit, what T calls of one token give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from uringinfer.kernels.formats import Weight
from uringinfer.kernels.gated_network import GatedNetwork
from uringinfer.kernels.weight_format import Floats, WeightFormat


class Tables(Protocol):
    """Made by `Kernels.tables` for one x and one codebook, and of use to those kernels alone."""

    @property
    def tokens(self) -> int: ...


SharedTables = dict[int, Tables]
"""The tables of one x with several codebooks, by the codebook's `id`; begins empty, and lives no longer than
the weights whose codebooks these are."""


class Kernels(Protocol):
    """The functions that layers are built from. Shapes: T tokens, H heads, G key/value heads, D head size."""

    name: str
    """'native' or 'numpy'."""
    simd: str
    """'avx512', 'avx2', 'portable' or 'numpy'."""
    threads: int
    notes: list[str]
    """What a user should know about the choice, in words: why the native kernels are not there."""

    def matmul(
        self, weight: Weight, x: Floats, out: Floats | None = None, *, tables: Tables | None = None
    ) -> Floats:
        """y[t, i] = sum_j weight[i, j] * x[t, j]: weight [m, n], x [T, n] -> [T, m].

        `out` may be a view with a row stride (a column range of a wider array). `tables` are those of `x` and
        the weight's codebook; they save time and change nothing."""
        ...

    def tables(self, weight: Weight, x: Floats) -> Tables | None:
        """What the products of x [T, n] with all weights that share this one's codebook have in common.

        None where there is nothing to share, or where the tables of so many tokens would not fit into what
        `product_bytes` announces."""
        ...

    def product_bytes(
        self, form: WeightFormat, rows: int, cols: int, tokens: int = 1, *, by_heads: bool = False
    ) -> int:
        """Bytes that `matmul` takes beside its arguments and its result, at most, while it multiplies
        `tokens` tokens with a weight [rows, cols]; `by_heads`: or `matmul_heads` does. `gated_networks`
        takes, for each network, what its three products take. Shared tables of few tokens are in it once
        more."""
        ...

    def function_bytes(self, nbytes: int) -> int:
        """Bytes that any other function takes beside its arguments and its result, at most, if these take
        `nbytes` at most together."""
        ...

    def rms_norm(self, x: Floats, weight: Floats | None, eps: float) -> Floats:
        """x [..., n] * weight [n] / sqrt(mean(x^2, last axis) + eps) -> [..., n]; weight None means ones."""
        ...

    def rotary(self, x: Floats, cos: Floats, sin: Floats, *, interleaved: bool = False) -> None:
        """Rotates x [T, H, D] in place by cos, sin [T, R/2] over the first R <= D channels of each head.

        Pairs are (i, i + R/2), or (2i, 2i + 1) if interleaved."""
        ...

    def gated(self, kind: str, gate: Floats, up: Floats, *, limit: float = 0.0, alpha: float = 1.0) -> Floats:
        """Gated activation of gate, up [T, n] -> [T, n].

        'silu': silu(gate) * up. 'gelu_tanh': gelu_tanh(gate) * up. 'swiglu_oai': gpt-oss' clamped form with
        `limit` and `alpha`. 'situ': alpha*tanh(gate/alpha) * sigmoid(gate) * limit*tanh(up/limit)."""
        ...

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
        """Each network on its own input: N networks, N inputs [T, hidden] -> [N, T, outer].

        All networks have one shape and the same formats. What comes out is, bit for bit, what `matmul`,
        additions of the biases and `gated` give; the native kernels need one call for all of it. `shared`
        keeps the tables of the inputs for later calls; then all inputs must be one array, call after call."""
        ...

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
        """Causal grouped-query attention over a cache -> [T, H, Dv].

        q [T, H, D]; keys [G, C, D] and values [G, C, Dv] are the caches of capacity C, which already hold the
        T new positions. Query t stands at position start + t and sees positions 0..start + t, only the last
        `window` of them if window > 0. `sinks` [H] adds one logit per head to the softmax's denominator."""
        ...

    def latent_attention(self, q: Floats, cache: Floats, rank: int, start: int, scale: float) -> Floats:
        """Causal attention over a compressed cache -> [T, H, rank].

        q [T, H, W]; cache [C, W] already holds the T new positions. All heads share one key a position, the
        row; its value is the row's first `rank` numbers. Query t stands at start + t and sees 0..start +
        t."""
        ...

    def matmul_heads(self, weight: Weight, x: Floats, *, offset: int, rows: int, transposed: bool) -> Floats:
        """Products with a block of rows for each head. weight [H * S, n]; head h's block B_h is its rows
        offset to offset + rows of h * S to (h + 1) * S.

        Plain: x [T, H, n], y[t, h] = B_h x[t, h] -> [T, H, rows]. Transposed: x [T, H, rows],
        y[t, h] = B_h^T x[t, h] -> [T, H, n]."""
        ...

    def causal_conv(self, x: Floats, history: Floats, taps: Floats) -> Floats:
        """silu(sum_i taps[c, i] * x[t - (K - 1) + i, c]): x [T, C], taps [C, K], K <= 16 -> [T, C].

        The last tap meets the current token. `history` [K - 1, C] holds the inputs before x, oldest first,
        and is moved on in place."""
        ...

    def l2_norm(self, x: Floats, eps: float, scale: float = 1.0) -> Floats:
        """x [..., n] * scale / sqrt(sum(x^2, last axis) + eps) -> [..., n]."""
        ...

    def forget_gate(self, z: Floats, bias: Floats, rate: Floats, lower_bound: float | None) -> Floats:
        """Decay of each key channel: z [T, H, D], bias [H, D], rate [H] -> [T, H, D], between 0 and 1.

        exp(-rate * softplus(z + bias)), or exp(lower_bound * sigmoid(rate * (z + bias))) with a lower
        bound."""
        ...

    def delta_rule(
        self, q: Floats, k: Floats, v: Floats, beta: Floats, decay: Floats, state: Floats
    ) -> Floats:
        """Gated delta rule over T tokens in order -> [T, H, V]; `state` [H, K, V] is updated in place.

        q, k, decay [T, H, K], v [T, H, V], beta [T, H]. For each token: row i of the state times decay[i];
        u = state^T k; state += k (beta * (v - u))^T; the output is state^T q of the updated state."""
        ...

    def sigmoid(self, x: Floats) -> Floats:
        """1 / (1 + exp(-x)), of any shape."""
        ...

    def softmax(self, x: Floats) -> Floats:
        """Softmax over the last axis."""
        ...

    def attention_residual(self, sources: Sequence[Floats], query: Floats, eps: float) -> Floats:
        """Each token's attention over its own sources, S arrays [T, E] -> [T, E].

        A source's score is the dot product of s / sqrt(mean(s^2) + eps) with `query` [E]; softmax over the
        sources; the raw ones are mixed."""
        ...
