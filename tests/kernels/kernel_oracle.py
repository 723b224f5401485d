"""What the kernels should compute, in plain float64 loops and formulas; shares no code with the package."""

import math

import numpy as np


def bf16_value(bits):
    """uint16 -> float64, from the definition: sign, 8 bits of exponent, 7 of mantissa."""
    bits = bits.astype(np.int64)
    sign = np.where(bits >> 15, -1.0, 1.0)
    exponent, mantissa = bits >> 7 & 255, bits & 127
    normal = np.ldexp(1 + mantissa / 128, exponent - 127)
    return sign * np.where(exponent > 0, normal, np.ldexp(mantissa / 128, -126))


def rms_norm(x, weight, eps):
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotary(x, cos, sin, interleaved):
    out = x.astype(np.float64)
    tokens, heads, _ = x.shape
    half = cos.shape[1]
    for t in range(tokens):
        for h in range(heads):
            for i in range(half):
                a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
                turn = complex(cos[t, i], sin[t, i])
                pair = complex(x[t, h, a], x[t, h, b]) * turn
                out[t, h, a], out[t, h, b] = pair.real, pair.imag
    return out


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gated(kind, gate, up, limit, alpha):
    gate, up = gate.astype(np.float64), up.astype(np.float64)
    if kind == "silu":
        return gate * sigmoid(gate) * up
    if kind == "gelu_tanh":
        return 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) * up
    if kind == "swiglu_oai":
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return (up + 1) * gate * sigmoid(alpha * gate)
    assert kind == "situ"
    return alpha * np.tanh(gate / alpha) * sigmoid(gate) * limit * np.tanh(up / limit)


def attention(q, keys, values, start, scale, window=0, sinks=None):
    q, keys, values = (a.astype(np.float64) for a in (q, keys, values))
    tokens, heads, _ = q.shape
    shared = heads // len(keys)
    out = np.zeros((tokens, heads, values.shape[2]))
    for t in range(tokens):
        last = start + t
        first = max(0, last - window + 1) if window else 0
        for h in range(heads):
            scores = keys[h // shared, first : last + 1] @ q[t, h] * scale
            top = scores.max() if sinks is None else max(scores.max(), sinks[h])
            weights = np.exp(scores - top)
            total = weights.sum() + (0 if sinks is None else np.exp(sinks[h] - top))
            out[t, h] = weights @ values[h // shared, first : last + 1] / total
    return out


def error(got, expected):
    """Distance of got from expected, relative to the norm of expected."""
    return np.linalg.norm(np.asarray(got, np.float64) - expected) / max(np.linalg.norm(expected), 1e-30)


HALF_A_STEP = 1.2e-7
"""What an activation may be off by, over the largest of its panel, where weights are integers."""


def activation_error(kernels, name):
    """The `error` that assert_product should allow these kernels for this format."""
    return HALF_A_STEP if kernels.name == "native" and name in ("mxfp4", "q4", "q4_g32") else 0.0


def assert_product(got, matrix, x, tolerance=1e-6, error=0.0, *, least=0.0):
    """got [T, m] is x [T, n] times the transpose of matrix [m, n], to `tolerance` of the absolute terms.

    Each activation may be off by `error` times the token's largest on top of that. Where a smaller weight is
    a sum of larger terms, `least` is what it counts as.
    """
    matrix, x = matrix.astype(np.float64), x.astype(np.float64)
    assert got.shape == (len(x), len(matrix))
    allowed = tolerance * np.abs(x) + error * np.abs(x).max(axis=1, keepdims=True)
    excess = np.abs(got - x @ matrix.T) - allowed @ np.maximum(np.abs(matrix), least).T
    assert excess.max() <= 0
