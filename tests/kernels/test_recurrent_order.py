"""Law 1 for gates, recurrent states and latent attention: neither the cut nor the threads show in a bit."""

import numpy as np
import pytest
from arrays import normal, packed

from uringinfer.kernels.formats import ENCODED

TOKENS = 70
CUTS = {"one by one": range(1, TOKENS), "uneven": (1, 8, 10, 43), "halves": (35,)}


def assert_cuts_do_not_show(native, compute):
    """`compute(kernels, start, stop)` gives the outputs of tokens [start, stop), called in order."""
    whole = compute(native(1), 0, TOKENS)
    for threads, cuts in zip((1, 2, 3), CUTS.values(), strict=True):
        parts = [
            compute(native(threads), start, stop)
            for start, stop in zip((0, *cuts), (*cuts, TOKENS), strict=True)
        ]
        np.testing.assert_array_equal(np.concatenate(parts).view(np.uint32), whole.view(np.uint32))


@pytest.mark.parametrize(("heads", "keys", "values"), [(3, 20, 37), (5, 128, 128)])
def test_the_delta_rule(native, heads, keys, values):
    q, k = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in normal(0, 2, TOKENS, heads, keys))
    v, beta, decay = normal(1, TOKENS, heads, values), 0.5 * np.ones((TOKENS, heads), np.float32), 0 * k + 0.9
    state = np.zeros((heads, keys, values), np.float32)

    def compute(kernels, start, stop):
        if start == 0:
            state[:] = 0
        piece = slice(start, stop)
        return kernels.delta_rule(q[piece], k[piece], v[piece], beta[piece], decay[piece], state)

    assert_cuts_do_not_show(native, compute)


@pytest.mark.parametrize("channels", [37, 1600])
def test_the_short_convolution(native, channels):
    x, taps, history = (
        normal(0, TOKENS, channels),
        normal(1, channels, 4),
        np.zeros((3, channels), np.float32),
    )

    def compute(kernels, start, stop):
        if start == 0:
            history[:] = 0
        return kernels.causal_conv(x[start:stop], history, taps)

    assert_cuts_do_not_show(native, compute)


@pytest.mark.parametrize(("heads", "rank", "rope"), [(3, 40, 12), (20, 96, 16)])
def test_latent_attention(native, heads, rank, rope):
    q, cache = normal(0, TOKENS, heads, rank + rope), normal(1, TOKENS + 90, rank + rope)

    def compute(kernels, start, stop):
        return kernels.latent_attention(q[start:stop], cache, rank, 90 + start, 0.1)

    assert_cuts_do_not_show(native, compute)


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_by_head(native, name, transposed):
    weight = packed(name, normal(0, 6 * 64, 100))
    x = normal(1, TOKENS, 6, 33 if transposed else 100)

    def compute(kernels, start, stop):
        return kernels.matmul_heads(weight, x[start:stop], offset=20, rows=33, transposed=transposed)

    assert_cuts_do_not_show(native, compute)


def test_gates_and_residuals(native):
    z, bias, rate = normal(0, TOKENS, 7, 90), normal(1, 7, 90), np.linspace(0.5, 4, 7, dtype=np.float32)
    sources, query = normal(2, 4, TOKENS, 630), normal(3, 630)
    steps = {
        "sigmoid": lambda kernels, piece: kernels.sigmoid(z[piece]),
        "softmax": lambda kernels, piece: kernels.softmax(z[piece]),
        "l2_norm": lambda kernels, piece: kernels.l2_norm(z[piece], 1e-6, 0.3),
        "softplus": lambda kernels, piece: kernels.forget_gate(z[piece], bias, rate, None),
        "bounded": lambda kernels, piece: kernels.forget_gate(z[piece], bias, rate, -5.0),
        "residual": lambda kernels, piece: kernels.attention_residual(
            [s[piece] for s in sources], query, 1e-5
        ),
    }
    for step in steps.values():
        assert_cuts_do_not_show(native, lambda kernels, start, stop, s=step: s(kernels, slice(start, stop)))
