"""Shape checks that both implementations make before they touch memory; each raises ValueError."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.formats import Weight
from uringinfer.kernels.gated_network import GatedNetwork
from uringinfer.kernels.weight_format import Floats

GATED_KINDS = ("silu", "gelu_tanh", "swiglu_oai", "situ")


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def dense(name: str, array: NDArray[np.float32], ndim: int | None = None) -> Floats:
    """`array` itself, if it is C-contiguous float32 with `ndim` axes."""
    right = array.dtype == np.float32 and array.flags.c_contiguous and ndim in (None, array.ndim)
    if not right:
        raise ValueError(
            f"{name} must be contiguous float32 with {ndim if ndim is not None else 'any'} axes,"
            f" not {array.dtype} {array.shape} with strides {array.strides}"
        )
    return array


def matmul_output(weight: Weight, x: Floats, out: Floats | None) -> Floats:
    """`out` for weight [m, n] and x [T, n], made if None: float32 [T, m] whose rows are contiguous."""
    dense("x", x, 2)
    if x.shape[1] != weight.cols:
        raise ValueError(f"x {x.shape} does not meet a weight [{weight.rows}, {weight.cols}]")
    if out is None:
        return np.empty((len(x), weight.rows), np.float32)
    right = out.dtype == np.float32 and out.shape == (len(x), weight.rows)
    right = right and (out.strides[1] == 4 or weight.rows == 1) and out.strides[0] >= 0
    right = right and out.flags.writeable
    wanted = (len(x), weight.rows)
    require(right, f"out must be writeable float32 {wanted} with contiguous rows, not {out.shape}")
    return out


def norm_weight(x: Floats, weight: Floats | None) -> None:
    """weight [n], or none, for x [..., n]."""
    dense("x", x)
    if weight is not None:
        right = x.ndim > 0 and dense("weight", weight, 1).shape == x.shape[-1:]
        require(right, f"a norm weight {weight.shape} does not meet x {x.shape}")


def rotary_shapes(x: Floats, cos: Floats, sin: Floats) -> int:
    """R of x [T, H, D] with cos, sin [T, R/2]."""
    dense("x", x, 3), dense("cos", cos, 2), dense("sin", sin, 2)
    rotated: int = 2 * cos.shape[1]
    right = cos.shape == sin.shape and len(cos) == len(x) and rotated <= x.shape[2]
    right = right and x.flags.writeable
    require(right, f"x {x.shape} cannot be rotated by cos {cos.shape}, sin {sin.shape}")
    return rotated


def attention_shapes(q: Floats, keys: Floats, values: Floats, start: int, sinks: Floats | None) -> None:
    """q [T, H, D], keys [G, C, D], values [G, C, Dv], sinks [H]."""
    dense("q", q, 3), dense("keys", keys, 3), dense("values", values, 3)
    tokens, heads, size = q.shape
    groups, capacity, _ = values.shape
    right = keys.shape == (groups, capacity, size) and heads % groups == 0
    require(right, f"q {q.shape} does not meet keys {keys.shape} and values {values.shape}")
    fits = start >= 0 and start + tokens <= capacity
    require(fits, f"positions {start} to {start + tokens} do not fit a cache of {capacity}")
    if sinks is not None:
        require(dense("sinks", sinks, 1).shape == (heads,), f"sinks {sinks.shape} must be [{heads}]")


def gated_shapes(kind: str, gate: Floats, up: Floats) -> None:
    """gate, up of one shape and a kind that exists."""
    require(kind in GATED_KINDS, f"'{kind}' is no gated activation: {', '.join(GATED_KINDS)}")
    dense("gate", gate), dense("up", up)
    require(gate.shape == up.shape, f"gate {gate.shape} and up {up.shape} differ")


def gated_networks(kind: str, networks: Sequence[GatedNetwork], inputs: Sequence[Floats]) -> None:
    """At least one network, all of one shape, one input [T, hidden] for each; biases that meet their rows."""
    require(kind in GATED_KINDS, f"'{kind}' is no gated activation: {', '.join(GATED_KINDS)}")
    require(0 < len(networks) == len(inputs), f"{len(networks)} networks do not meet {len(inputs)} inputs")
    first, shape = networks[0], (len(inputs[0]), networks[0].gate.cols)
    fits = first.up.rows == first.gate.rows == first.down.cols and first.up.cols == first.gate.cols
    require(fits, f"gate, up and down do not meet: {first.shape}")
    checked = None
    for network, x in zip(networks, inputs, strict=True):
        if network.shape != first.shape:
            raise ValueError(f"networks {first.shape} and {network.shape} differ")
        if x is not checked:  # the experts of a single token have one input
            require(dense("input", x, 2).shape == shape, f"an input {x.shape} is not {shape}")
            checked = x
        for weight, bias in network.parts():
            if bias is not None:
                right = dense("bias", bias, 1).shape == (weight.rows,)
                require(right, f"a bias {bias.shape} does not meet {weight.rows} rows")
