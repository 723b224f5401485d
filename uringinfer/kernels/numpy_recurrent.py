"""Numpy reference of linear attention with a recurrent state: convolution, normalisation, decay, delta rule.

The contracts, with shapes, stand at `Kernels`. Tokens are taken one after another wherever one depends on the
last, so a long call and many short ones do the same arithmetic.
"""

from __future__ import annotations

import numpy as np

from uringinfer.kernels.numpy_gates import sigmoid
from uringinfer.kernels.recurrent_checks import conv_shapes, delta_shapes, gate_shapes
from uringinfer.kernels.weight_format import Floats


def l2_norm(x: Floats, eps: float, scale: float = 1.0) -> Floats:
    """x [..., n] * scale / sqrt(sum(x^2, last axis) + eps)."""
    square = np.sum(np.square(x), axis=-1, keepdims=True, dtype=np.float32)
    return np.asarray(x * (np.float32(scale) / np.sqrt(square + np.float32(eps))), np.float32)


def causal_conv(x: Floats, history: Floats, taps: Floats) -> Floats:
    """silu of a causal depthwise convolution; `history` moves on."""
    conv_shapes(x, history, taps)
    padded = np.concatenate([history, x])
    mixed = np.zeros_like(x)
    for tap in range(taps.shape[1]):
        mixed += padded[tap : tap + len(x)] * taps[:, tap]
    history[...] = padded[len(x) :]
    return mixed * sigmoid(mixed)


def forget_gate(z: Floats, bias: Floats, rate: Floats, lower_bound: float | None) -> Floats:
    """The decay of each key channel, between 0 and 1."""
    gate_shapes(z, bias, rate)
    raw = z + bias
    if lower_bound is None:
        exponent = -rate[:, None] * np.logaddexp(np.float32(0), raw)  # softplus
    else:
        exponent = np.float32(lower_bound) * sigmoid(rate[:, None] * raw)
    decay: Floats = np.exp(exponent)
    return decay


def delta_rule(q: Floats, k: Floats, v: Floats, beta: Floats, decay: Floats, state: Floats) -> Floats:
    """Decays the state, corrects it by the delta rule and reads it, one token after another."""
    delta_shapes(q, k, v, beta, decay, state)
    output = np.empty_like(v)
    for t in range(len(q)):
        state *= decay[t][:, :, None]
        recalled = np.matmul(k[t][:, None, :], state)[:, 0]  # [H, V]
        correction = beta[t][:, None] * (v[t] - recalled)
        state += k[t][:, :, None] * correction[:, None, :]
        output[t] = np.matmul(q[t][:, None, :], state)[:, 0]
    return output
