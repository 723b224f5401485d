"""Models with routed experts: what they demand, what they guess, and what must not show in the logits."""

import numpy as np
import pytest
from dict_weights import DictWeights
from golden_cases import CASES
from golden_files import TOLERANCE, arrays_of, feed, load

from uringinfer.errors import UnsupportedModelError, UsageError
from uringinfer.models import model_from_config

WITH_EXPERTS = [name for name in CASES if arrays_of(name)["routing"].size]


@pytest.fixture(params=WITH_EXPERTS)
def golden(request):
    return load(request.param)


def test_the_order_in_which_experts_arrive_does_not_change_a_bit(golden, kernels):
    model = golden.model()
    results = {
        feed(model, DictWeights(model, golden.checkpoint, kernels, seed=seed), golden.ids).tobytes()
        for seed in range(4)
    }
    assert len(results) == 1


def test_a_chunk_demands_once_in_each_layer_with_experts(golden, kernels):
    model, weights = golden.model(), golden.weights(kernels)
    feed(model, weights, golden.ids)
    assert [layer for layer, _ in weights.experts.demanded] == [
        layer.layer for layer in model.expert_layers()
    ]


def test_guessing_ahead_does_not_change_a_bit(golden, kernels):
    model = golden.model()
    plain, guessing = golden.weights(kernels), golden.weights(kernels)
    guessing.experts.lookahead = 4
    assert feed(model, guessing, golden.ids, 1).tobytes() == feed(model, plain, golden.ids, 1).tobytes()


def test_a_decode_step_guesses_the_experts_of_each_layer_that_follows_one_with_experts(golden, kernels):
    model, weights = golden.model(), golden.weights(kernels)
    weights.experts.lookahead = 4
    feed(model, weights, golden.ids[:1])
    layers = {layer.layer for layer in model.expert_layers()}
    assert [layer for layer, _ in weights.experts.hinted] == [n for n in sorted(layers) if n - 1 in layers]
    assert all(len(set(guess)) == 4 for _, guess in weights.experts.hinted)


def test_a_late_guess_names_as_many_as_a_token_takes_and_more_of_them(kernels):
    golden = load("olmoe")
    model, weights = golden.model(), golden.weights(kernels)
    top_k = model.experts_per_token
    weights.experts.lookahead = top_k
    feed(model, weights, golden.ids, 1)
    right = {"early": 0, "late": 0}
    turns = [(layer, set(routed[0].tolist())) for layer, routed in weights.experts.demanded if layer > 0]
    for name, guesses in (("early", weights.experts.hinted), ("late", weights.experts.hinted_late)):
        assert [layer for layer, _ in guesses] == [layer for layer, _ in turns]
        assert all(len(set(guess)) == top_k for _, guess in guesses)
        right[name] = sum(
            len(chosen & set(guess)) for (_, chosen), (_, guess) in zip(turns, guesses, strict=True)
        )
    assert right["late"] > right["early"]


def test_prefill_does_not_guess(golden, kernels):
    weights = golden.weights(kernels)
    weights.experts.lookahead = 4
    feed(golden.model(), weights, golden.ids)
    assert weights.experts.hinted == []


def test_guesses_hit_more_often_than_chance(kernels):
    golden = load("mixtral")
    weights = golden.weights(kernels)
    weights.experts.lookahead = 2
    feed(golden.model(), weights, golden.ids, 1)
    hits = total = 0
    demanded = iter(weights.experts.demanded)
    guesses = iter(weights.experts.hinted)
    for layer, routed in demanded:
        if layer > 0:
            guessed_layer, guess = next(guesses)
            assert guessed_layer == layer
            hits += len(set(guess) & set(routed[0].tolist()))
            total += 2
    assert hits / total > 1.3 * 2 / 6


def test_a_router_is_declared_in_the_layer_before_its_own(golden):
    model = golden.model()
    places = {spec.name: group.name for group in model.trunk() for spec in group.tensors if spec.exact}
    for name, group in places.items():
        layer = int(name.split(".")[1])
        assert group == f"layers.{max(layer - 1, 0)}"


def test_stacked_and_split_experts_give_the_same_logits(kernels):
    golden = load("qwen3_moe")
    expected = feed(golden.model(), golden.weights(kernels), golden.ids)
    for layer in golden.model().expert_layers():
        prefix = f"model.layers.{layer.layer}.mlp.experts"
        split = [
            [golden.checkpoint.pop(f"{prefix}.{expert}.{part}.weight") for expert in range(layer.count)]
            for part in ("gate_proj", "up_proj", "down_proj")
        ]
        golden.checkpoint[f"{prefix}.gate_up_proj"] = np.concatenate([split[0], split[1]], axis=1)
        golden.checkpoint[f"{prefix}.down_proj"] = np.array(split[2])
    assert feed(golden.model(), golden.weights(kernels), golden.ids).tobytes() == expected.tobytes()


def test_experts_per_token_overrides_the_config(golden, kernels):
    model = model_from_config(golden.config, experts_per_token=1)
    weights = golden.weights(kernels)
    logits = feed(model, weights, golden.ids)
    assert model.experts_per_token == 1
    assert all(routed.shape == (len(golden.ids), 1) for _, routed in weights.experts.demanded)
    assert golden.error(logits) > 100 * TOLERANCE


@pytest.mark.parametrize(("name", "number"), [("mixtral", 0), ("mixtral", 7), ("llama", 1)])
def test_a_number_of_experts_that_cannot_be_had_is_refused(name, number):
    with pytest.raises(UsageError, match=f"{number} experts per token"):
        model_from_config(load(name).config, experts_per_token=number)


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("mixtral", {"num_experts_per_tok": 7}, "num_experts_per_tok"),
        ("mixtral", {"num_experts": 5}, "num_local_experts"),
        ("qwen2_moe", {"use_sliding_window": True, "layer_types": None}, "use_sliding_window"),
        ("qwen3_moe", {"mlp_only_layers": "all"}, "mlp_only_layers"),
        ("qwen3_moe", {"shared_expert_intermediate_size": 8}, "shared_expert_intermediate_size"),
        ("gpt_oss", {"experts_per_token": 4}, "experts_per_token"),
        ("glm4_moe", {"n_group": 3}, "n_group"),
        ("glm4_moe", {"n_group": 8, "topk_group": 8}, "n_group"),
        ("glm4_moe", {"topk_group": 5}, "topk_group"),
        ("glm4_moe", {"scoring_func": "softmax"}, "scoring_func"),
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method"),
        ("deepseek_v3", {"topk_method": "greedy"}, "topk_method"),
        ("deepseek_v3", {"moe_layer_freq": 2}, "moe_layer_freq"),
        ("deepseek_v3", {"attention_bias": True}, "attention_bias"),
        ("deepseek_v3", {"qk_head_dim": 99}, "qk_head_dim"),
    ],
)
def test_a_setting_that_cannot_be_honoured_is_refused_by_name(name, changes, named):
    with pytest.raises(UnsupportedModelError, match=f"config key '{named}'"):
        model_from_config({**load(name).config, **changes})


def test_layers_that_predict_further_tokens_may_be_left_over(kernels):
    golden = load("deepseek_v3")
    golden.config["num_nextn_predict_layers"] = 1
    golden.checkpoint["model.layers.3.eh_proj.weight"] = np.zeros((2, 2), np.float32)
    assert golden.weights(kernels).leftovers() == []
