"""Grouped-query attention's use of its options, against plain float64 formulas."""

from dataclasses import replace

import numpy as np
import pytest

from uringinfer.kernels.numpy_kernels import NumpyKernels
from uringinfer.layers.attention import GroupedAttention
from uringinfer.layers.rotary import Rotary, default_frequencies
from uringinfer.layers.step import Step

HIDDEN, HEADS, GROUPS, DIM, TOKENS = 12, 4, 2, 6, 5
RNG = np.random.default_rng(3)
MATRICES = {
    name: RNG.standard_normal((rows, cols)).astype(np.float32) * 0.3
    for name, rows, cols in (
        ("a.q_proj", HEADS * DIM, HIDDEN),
        ("a.k_proj", GROUPS * DIM, HIDDEN),
        ("a.v_proj", GROUPS * DIM, HIDDEN),
        ("a.o_proj", HIDDEN, HEADS * DIM),
    )
}
X = RNG.standard_normal((TOKENS, HIDDEN)).astype(np.float32)
ROTARY = Rotary(default_frequencies(100.0, DIM).astype(np.float32))
PLAIN = GroupedAttention("a", "model.a", HIDDEN, HEADS, GROUPS, DIM, scale=0.4, rotary=ROTARY)


class Matrices:
    """`Weights` of one layer without norms and biases."""

    kernels = NumpyKernels()

    def matmul(self, name, x):
        return x @ MATRICES[name].T


def rotated(x, interleaved):
    """x [T, H, D] with each pair of channels turned by position times frequency."""
    pairs = x.reshape(*x.shape[:2], -1, 2) if interleaved else np.stack(np.split(x, 2, axis=2), axis=3)
    angles = np.arange(len(x))[:, None, None] * default_frequencies(100.0, DIM)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    parts = (turned.real, turned.imag)
    return np.stack(parts, axis=3).reshape(x.shape) if interleaved else np.concatenate(parts, axis=2)


def expected(interleaved, window=TOKENS, bound=np.inf):
    """The definition, one head and one query at a time."""
    x = X.astype(np.float64)
    q, k, v = (
        np.clip(x @ MATRICES[f"a.{name}_proj"].T, -bound, bound).reshape(TOKENS, -1, DIM) for name in "qkv"
    )
    q, k = rotated(q, interleaved), rotated(k, interleaved)
    mixed = np.zeros((TOKENS, HEADS, DIM))
    for token in range(TOKENS):
        first = max(0, token - window + 1)
        for head in range(HEADS):
            group = head // (HEADS // GROUPS)
            scores = 0.4 * k[first : token + 1, group] @ q[token, head]
            shares = np.exp(scores) / np.exp(scores).sum()
            mixed[token, head] = shares @ v[first : token + 1, group]
    return mixed.reshape(TOKENS, -1) @ MATRICES["a.o_proj"].T


def attend(layer):
    return layer.forward(Matrices(), [layer.new_cache(TOKENS)], X, Step([(0, TOKENS)]))


@pytest.mark.parametrize("interleaved", [False, True])
def test_pairs_of_channels_are_halves_or_neighbours(interleaved):
    layer = replace(PLAIN, rotary=replace(ROTARY, interleaved=interleaved))
    assert attend(layer) == pytest.approx(expected(interleaved), abs=1e-5)


def test_a_window_counts_the_position_itself():
    assert attend(replace(PLAIN, window=2)) == pytest.approx(expected(False, window=2), abs=1e-5)


def test_a_clip_bounds_queries_keys_and_values():
    assert attend(replace(PLAIN, clip=0.3)) == pytest.approx(expected(False, bound=0.3), abs=1e-5)


def test_tokens_fed_later_see_those_fed_before():
    cache = PLAIN.new_cache(TOKENS)
    first = PLAIN.forward(Matrices(), [cache], X[:2], Step([(0, 2)]))
    rest = PLAIN.forward(Matrices(), [cache], X[2:], Step([(2, TOKENS - 2)]))
    assert np.concatenate([first, rest]) == pytest.approx(expected(False), abs=1e-5)
