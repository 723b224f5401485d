"""Other seeds and shapes than the golden files hold, with transformers computing live."""

import sys
from pathlib import Path

import pytest
from golden_cases import CASES
from golden_files import TOLERANCE, continue_greedily, feed, from_arrays

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

WIDER = {
    "vocab_size": 251,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 12,
    "max_position_embeddings": 512,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_logits_routing_and_greedy_tokens_agree_with_transformers(name, kernels):
    make_golden = pytest.importorskip("make_golden", reason="the oracle needs torch and transformers")
    groups = 12 if CASES[name]["config"]["num_key_value_heads"] == 4 else 6
    config = {**CASES[name]["config"], **WIDER, "num_key_value_heads": groups}
    case = {**CASES[name], "seed": 11, "tokens": 90, "config": config}
    golden = from_arrays(make_golden.golden(case))
    model = golden.model()
    for chunk in (None, 32, 1):
        weights = golden.weights(kernels)
        assert golden.error(feed(model, weights, golden.ids, chunk)) < TOLERANCE
        assert golden.experts_agree(weights.experts.demanded)
    assert continue_greedily(model, golden.weights(kernels), golden.ids, 16) == golden.greedy.tolist()
