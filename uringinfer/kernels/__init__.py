"""Arithmetic on packed weights. Knows nothing of files.

`Kernels` is the contract; `numpy_kernels.NumpyKernels` is the reference and always there,
`native_kernels.NativeKernels` computes the same functions in C. `open_kernels` chooses. Every array is
float32 and C-contiguous unless a docstring says otherwise; what does not fit raises ValueError.

The native kernels accumulate each output element in an order that depends on neither the number of tokens in
a call nor the number of threads: T tokens at once give, bit for bit, what T calls of one token give.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.kernels.formats import Weight

Floats = NDArray[np.float32]


class Kernels(Protocol):
    """The functions that layers are built from. Shapes: T tokens, H heads, G key/value heads, D head size."""

    name: str
    """'native' or 'numpy'."""
    simd: str
    """'avx512', 'avx2', 'portable' or 'numpy'."""
    threads: int
    notes: list[str]
    """What a user should know about the choice, in words: why the native kernels are not there."""

    def matmul(self, weight: Weight, x: Floats, out: Floats | None = None) -> Floats:
        """y[t, i] = sum_j weight[i, j] * x[t, j]: weight [m, n], x [T, n] -> [T, m].

        `out` may be a view with a row stride (a column range of a wider array)."""
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


def open_kernels(native: bool | None = None, threads: int | None = None, simd: str | None = None) -> Kernels:
    """The kernels to compute with.

    `native` None takes the native ones if they are built and the environment does not forbid them, and says
    in `notes` why not; True insists on them, False takes numpy. `threads` None means every processor that
    this process may use. `simd` ('avx512', 'avx2', 'portable') overrides the choice made for this machine.
    Raises UsageError for a `threads` or `simd` that cannot be, EnvironmentError_ if `native` is True and
    there are none.
    """
    # Late, because both implementations import their formats and checks from this package.
    from uringinfer.kernels.cpus import usable_cpus
    from uringinfer.kernels.numpy_kernels import NumpyKernels

    threads = usable_cpus() if threads is None else threads
    if threads < 1:
        raise UsageError(f"{threads} threads cannot compute", hint="give 1 or more")
    if native is False:
        return NumpyKernels(threads)
    missing = "the native kernels are not built"
    if native:
        raise EnvironmentError_(missing, hint="build them with `python setup.py build_ext --inplace`")
    return NumpyKernels(threads, [missing])
