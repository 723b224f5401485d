"""Latent attention against the textbook form in float64, in which every key and value is expanded."""

import numpy as np
import pytest
from ordered_weights import OrderedWeights, random_arrays

from uringinfer.layers.latent_attention import LatentAttention
from uringinfer.layers.rotary import Rotary
from uringinfer.layers.step import Step

SIZES = {"hidden": 48, "heads": 4, "kv_rank": 40, "nope_dim": 20, "rope_dim": 12, "value_dim": 26}
ROTARY = Rotary((100.0 ** (-np.arange(6) / 6)).astype(np.float32), interleaved=True)
VARIANTS = {
    "plain": {"q_rank": None},
    "query latent": {"q_rank": 24},
    "output gate": {"q_rank": 24, "output_gate": True},
    "rotary": {"q_rank": 24, "rotary": ROTARY},
    "rotary in halves": {"q_rank": None, "rotary": Rotary(ROTARY.frequencies, scale=1.2)},
}


def make(**options):
    return LatentAttention("layers.0.attn", "model.attn", latent_eps=1e-2, scale=0.3, **SIZES, **options)


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, rotary):
    """x [T, ..., rope], each pair of channels as one complex number."""
    if rotary is None:
        return x
    angles = np.multiply.outer(np.arange(len(x)), rotary.frequencies.astype(np.float64))
    turn = rotary.scale * np.exp(1j * angles).reshape(len(x), *[1] * (x.ndim - 2), -1)
    half = x.shape[-1] // 2
    if rotary.interleaved:
        pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
        return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)
    pairs = (x[..., :half] + 1j * x[..., half:]) * turn
    return np.concatenate([pairs.real, pairs.imag], -1)


def expanded(layer, arrays, x):
    """x [T, hidden] from position 0 -> [T, hidden], in float64."""
    w = {name.removeprefix(layer.name + "."): a.astype(np.float64) for name, a in arrays.items()}
    nope, rope, rank = layer.nope_dim, layer.rope_dim, layer.kv_rank
    if layer.q_rank is None:
        query = x @ w["q_proj"].T
    else:
        query = rms(x @ w["q_a_proj"].T, w["q_a_layernorm"], layer.latent_eps) @ w["q_b_proj"].T
    query = query.reshape(len(x), layer.heads, nope + rope)
    compressed = x @ w["kv_a_proj_with_mqa"].T
    pairs = rms(compressed[:, :rank], w["kv_a_layernorm"], layer.latent_eps) @ w["kv_b_proj"].T
    pairs = pairs.reshape(len(x), layer.heads, nope + layer.value_dim)
    shared = rotate(compressed[:, rank:], layer.rotary)
    turned = rotate(query[:, :, nope:], layer.rotary)
    output = np.zeros((len(x), layer.heads, layer.value_dim))
    for t, h in np.ndindex(len(x), layer.heads):
        key = np.concatenate([pairs[: t + 1, h, :nope], shared[: t + 1]], axis=1)
        score = layer.scale * key @ np.concatenate([query[t, h, :nope], turned[t, h]])
        share = np.exp(score - score.max())
        output[t, h] = share / share.sum() @ pairs[: t + 1, h, nope:]
    output = output.reshape(len(x), -1)
    if layer.output_gate:
        output /= 1 + np.exp(-x @ w["g_proj"].T)
    return output @ w["o_proj"].T


def run(layer, arrays, x, cuts):
    """The layer's output over x, fed in pieces that end at `cuts`."""
    cache = layer.new_cache(len(x))
    pieces = []
    for start, stop in zip((0, *cuts), (*cuts, len(x)), strict=True):
        weights = OrderedWeights(layer.tensors(), arrays)
        pieces.append(layer.forward(weights, [cache], x[start:stop], Step([(start, stop - start)])))
        weights.assert_all_used()
    return np.concatenate(pieces)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("cuts", [(), (1, 2, 3, 8)])
def test_the_absorbed_form_is_the_expanded_one(variant, cuts):
    layer = make(**VARIANTS[variant])
    arrays = random_arrays(layer.tensors(), 1)
    x = np.random.default_rng(2).standard_normal((11, SIZES["hidden"])).astype(np.float32)
    expected = expanded(layer, arrays, x.astype(np.float64))
    np.testing.assert_allclose(run(layer, arrays, x, cuts), expected, rtol=0, atol=1e-5 * abs(expected).max())


def test_a_position_costs_a_latent_and_a_rotary_key():
    layer = make(q_rank=None)
    assert layer.new_cache(100).nbytes == layer.cache_bytes(100) == 4 * 100 * (40 + 12)


def test_kv_b_proj_is_declared_whole_because_each_head_needs_its_own_rows():
    whole = [spec.name for spec in make(q_rank=24).tensors() if spec.whole]
    assert whole == ["layers.0.attn.kv_b_proj"]
