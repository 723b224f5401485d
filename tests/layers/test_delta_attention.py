"""Kimi Delta Attention against the recurrence written out in float64."""

import numpy as np
import pytest
from ordered_weights import OrderedWeights, random_arrays

from uringinfer.layers.delta_attention import DeltaAttention
from uringinfer.layers.step import Step

VARIANTS = {
    "softplus decay, gate of low rank": {"lower_bound": None, "full_rank_gate": False},
    "bounded decay, gate of full rank": {"lower_bound": -5.0, "full_rank_gate": True},
}


def make(**options):
    return DeltaAttention("layers.0.attn", "model.attn", 40, 3, 16, 4, 1e-5, **options)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def written_out(layer, arrays, x):
    """x [T, hidden] from the start of a text -> [T, hidden], in float64."""
    w = {name.removeprefix(layer.name + "."): a.astype(np.float64) for name, a in arrays.items()}
    heads, size = layer.heads, layer.head_dim

    def mixed(letter):
        raw = np.vstack([np.zeros((layer.taps - 1, layer.channels)), x @ w[f"{letter}_proj"].T])
        taps = w[f"{letter}_conv1d"][:, 0]
        y = np.array([(raw[t : t + layer.taps].T * taps).sum(1) for t in range(len(x))])
        return (y * sigmoid(y)).reshape(len(x), heads, size)

    q, k, v = mixed("q"), mixed("k"), mixed("v")
    q, k = (a / np.sqrt((a * a).sum(-1, keepdims=True) + 1e-6) for a in (q, k))
    z = (x @ w["f_a_proj"].T @ w["f_b_proj"].T + w["dt_bias"]).reshape(len(x), heads, size)
    rate = np.exp(w["A_log"].ravel()[:heads, None])
    if layer.lower_bound is None:
        decay = np.exp(-rate * np.log1p(np.exp(z)))
    else:
        decay = np.exp(layer.lower_bound * sigmoid(rate * z))
    beta = sigmoid(x @ w["b_proj"].T)
    gate = x @ w["g_proj"].T if layer.full_rank_gate else x @ w["g_a_proj"].T @ w["g_b_proj"].T
    state, output = np.zeros((heads, size, size)), np.zeros((len(x), heads, size))
    for t, h in np.ndindex(len(x), heads):
        state[h] *= decay[t, h][:, None]
        state[h] += beta[t, h] * np.outer(k[t, h], v[t, h] - state[h].T @ k[t, h])
        output[t, h] = state[h].T @ q[t, h] / np.sqrt(size)
    output = output / np.sqrt((output**2).mean(-1, keepdims=True) + 1e-5) * w["o_norm"]
    return output.reshape(len(x), -1) * sigmoid(gate) @ w["o_proj"].T


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cuts", [(), (1, 2, 3, 7)])
def test_the_layer_is_the_recurrence_whole_and_in_pieces(variant, cuts):
    layer = make(**VARIANTS[variant])
    arrays = random_arrays(layer.tensors(), 1)
    x = np.random.default_rng(2).standard_normal((9, 40)).astype(np.float32)
    expected = written_out(layer, arrays, x.astype(np.float64))
    state, pieces = layer.new_cache(9), []
    for start, stop in zip((0, *cuts), (*cuts, len(x)), strict=True):
        weights = OrderedWeights(layer.tensors(), arrays)
        pieces.append(layer.forward(weights, [state], x[start:stop], Step([(start, stop - start)])))
        weights.assert_all_used()
    np.testing.assert_allclose(np.concatenate(pieces), expected, rtol=0, atol=1e-5 * abs(expected).max())


@pytest.mark.parametrize("shape", [(1, 1, 3, 1), (16,)])
def test_rates_may_have_axes_of_one_or_padding(shape):
    layer = make(**VARIANTS["bounded decay, gate of full rank"])
    arrays = random_arrays(layer.tensors(), 1)
    x = np.random.default_rng(2).standard_normal((3, 40)).astype(np.float32)
    expected = layer.forward(OrderedWeights(layer.tensors(), arrays), [layer.new_cache(3)], x, Step([(0, 3)]))
    name = "layers.0.attn.A_log"
    arrays[name] = np.resize(np.append(arrays[name], np.zeros(13, np.float32)), shape)
    weights = OrderedWeights(layer.tensors(), arrays)
    np.testing.assert_array_equal(layer.forward(weights, [layer.new_cache(3)], x, Step([(0, 3)])), expected)


def test_what_a_conversation_keeps_does_not_depend_on_its_length():
    layer = make(lower_bound=None, full_rank_gate=True)
    assert layer.new_cache(1).nbytes == layer.new_cache(10**6).nbytes == layer.cache_bytes(10**6)
    assert layer.cache_bytes(1) == 4 * (3 * 16 * 16 + 3 * 3 * 48)
