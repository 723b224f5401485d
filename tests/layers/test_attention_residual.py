import numpy as np
from ordered_weights import OrderedWeights, random_arrays

from uringinfer.layers.attention_residual import AttentionResidual

RESIDUAL = AttentionResidual("layers.0.mlp_res", "model.layers.0.mlp_res", hidden=24, eps=1e-5)
ARRAYS = random_arrays(RESIDUAL.tensors(), 1)


def forward(sources):
    weights = OrderedWeights(RESIDUAL.tensors(), ARRAYS)
    mixed = RESIDUAL.forward(weights, sources)
    weights.assert_all_used()
    return mixed


def test_each_token_mixes_its_raw_sources_by_the_scores_of_the_normed_ones():
    sources = [3 * np.random.default_rng(n).standard_normal((5, 24)).astype(np.float32) for n in range(3)]
    norm, projection = ARRAYS["layers.0.mlp_res_norm"], ARRAYS["layers.0.mlp_res_proj"][0]
    stacked = np.stack(sources).astype(np.float64)
    normed = stacked / np.sqrt((stacked**2).mean(-1, keepdims=True) + 1e-5) * norm
    share = np.exp(normed @ projection)
    expected = (stacked * (share / share.sum(0))[:, :, None]).sum(0)
    np.testing.assert_allclose(forward(sources), expected, rtol=0, atol=1e-5)


def test_one_source_gives_itself_back():
    source = np.random.default_rng(0).standard_normal((4, 24)).astype(np.float32)
    np.testing.assert_array_equal(forward([source]), source)
