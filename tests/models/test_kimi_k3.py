"""Kimi K3 against float64: an oracle beside this file, and an independent reference (kimi_k3_golden.npz)."""

import copy
import json
from pathlib import Path

import kimi_k3_oracle as oracle
import numpy as np
import pytest
from dict_weights import DictWeights
from golden_files import continue_greedily, feed
from kimi_k3_cases import CASES, GREEDY, make, prompt

from uringinfer.errors import UnsupportedModelError
from uringinfer.kernels import open_kernels
from uringinfer.models import model_from_config

TOLERANCE = 1e-5
GOLDEN = Path(__file__).with_name("kimi_k3_golden.npz")


class Case:
    """A tiny checkpoint, its model, and what the oracle says of its prompt."""

    def __init__(self, name, directory):
        make(name, directory)
        self.ids = prompt(name)
        self.checkpoint = oracle.Checkpoint(directory)
        self.config = json.loads((directory / "config.json").read_text())
        self.model = model_from_config(self.config)
        self.logits = oracle.forward(self.checkpoint, self.ids)
        self.arrays = decoded(self.checkpoint)

    def weights(self, kernels):
        return DictWeights(self.model, self.arrays, kernels)


def decoded(checkpoint):
    """Every tensor as float32 by name; a packed expert under the name of its plain matrix."""
    arrays = {}
    for name in checkpoint:
        if name.endswith("_packed"):
            plain = name.removesuffix("_packed")
            arrays[plain] = checkpoint.expert_matrix(plain).astype(np.float32)
        elif not name.endswith("_scale"):
            arrays[name] = checkpoint[name].astype(np.float32)
    return arrays


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return {name: Case(name, tmp_path_factory.mktemp(name)) for name in CASES}


@pytest.fixture(params=list(CASES))
def case(request, cases):
    return cases[request.param]


def error(logits, expected):
    return np.abs(logits - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("chunk", [None, 5, 1], ids=lambda chunk: f"chunk_{chunk or 'all'}")
def test_logits_agree_with_float64(case, kernels, chunk):
    assert error(feed(case.model, case.weights(kernels), case.ids, chunk), case.logits) < TOLERANCE


def test_numpy_kernels_agree_with_float64(case):
    weights = case.weights(open_kernels(native=False))
    assert error(feed(case.model, weights, case.ids), case.logits) < TOLERANCE


def test_greedy_tokens_are_those_of_float64(case, kernels):
    chosen = continue_greedily(case.model, case.weights(kernels), case.ids, GREEDY)
    logits = oracle.forward(case.checkpoint, [*case.ids, *chosen])
    assert chosen == logits[len(case.ids) - 1 : -1].argmax(axis=1).tolist()


@pytest.mark.parametrize("name", [name for name, (_, mxfp4) in CASES.items() if mxfp4])
def test_the_oracle_and_the_engine_agree_with_an_independent_reference(name, cases, kernels):
    case = cases[name]
    with np.load(GOLDEN) as golden:
        logits, greedy = golden[f"{name}_logits"], golden[f"{name}_greedy"]
    assert error(case.logits, logits) < 1e-7  # kept in float32
    assert error(feed(case.model, case.weights(kernels), case.ids), logits) < TOLERANCE
    assert continue_greedily(case.model, case.weights(kernels), case.ids, GREEDY) == greedy.tolist()


@pytest.mark.parametrize("name", list(CASES))
def test_chunks_and_threads_do_not_change_a_bit(name, cases, native):
    case, ids = cases[name], np.resize(cases[name].ids, 70)
    one_by_one = feed(case.model, case.weights(open_kernels(native=True, threads=1)), ids, 1)
    for threads in (1, 2):
        weights = case.weights(open_kernels(native=True, threads=threads))
        for chunk in (7, 64):
            assert feed(case.model, weights, ids, chunk).tobytes() == one_by_one.tobytes()


def test_every_tensor_of_the_checkpoint_is_declared(case, kernels):
    weights = case.weights(kernels)
    feed(case.model, weights, case.ids[:2])
    assert weights.passes == 1 and weights.leftovers() == []


def test_names_without_the_prefix_and_a_flat_config_mean_the_same(cases, kernels):
    case = cases["mxfp4"]
    flat = case.config["text_config"]
    assert flat["model_type"] == "kimi_linear"  # as the release writes it below text_config
    model = model_from_config(flat)
    bare = {name.removeprefix("language_model."): array for name, array in case.arrays.items()}
    expected = feed(case.model, case.weights(kernels), case.ids)
    for arrays in (bare, case.arrays):
        got = feed(model, DictWeights(model, arrays, kernels), case.ids)
        np.testing.assert_array_equal(got, expected)


def test_the_eps_of_the_latents_is_a_setting_of_its_own(cases, kernels):
    case = cases["mxfp4"]
    config = copy.deepcopy(case.config)
    config["text_config"]["latent_norm_eps"] = 1e-6
    model = model_from_config(config)
    got = feed(model, DictWeights(model, case.arrays, kernels), case.ids)
    assert error(got, oracle.forward(case.checkpoint, case.ids, latent_eps=1e-6)) < TOLERANCE
    assert error(got, case.logits) > 0.01


def test_the_state_of_a_delta_layer_does_not_grow(cases):
    case = cases["mxfp4"]
    text = case.config["text_config"]
    latent = 3 * 4 * (text["kv_lora_rank"] + text["qk_rope_head_dim"])  # three such layers
    assert case.model.state_bytes(1001) - case.model.state_bytes(1) == 1000 * latent


REFUSED = {
    "a layer map from zero": ("linear_attn_config", {"full_attn_layers": [3, 7, 8]}),
    "a layer in both lists": ("linear_attn_config", {"kda_layers": [1, 2, 3, 4, 5, 6, 7]}),
    "no lower bound": ("linear_attn_config", {"gate_lower_bound": None}),
    "a gate of low rank": ("linear_attn_config", {"use_full_rank_gate": False}),
    "latent attention with rotation": ("mla_use_nope", False),
    "another activation": ("hidden_act", "silu"),
    "another router": ("moe_router_activation_func", "softmax"),
    "another quantisation": ("quantization_config", {"format": "int4"}),
    "layers that predict further tokens": ("num_nextn_predict_layers", 1),
    "a key that nobody knows": ("sliding_window", 512),
    "more experts than there are": ("num_experts_per_token", 13),
}
SPARE = {"bos_token_id", "eos_token_id", "pad_token_id", "model_type", "quantization_config", "topk_method"}
SPARE |= {"num_nextn_predict_layers"}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_config_that_cannot_be_honoured_is_refused_by_name(reason, cases):
    key, value = REFUSED[reason]
    config = copy.deepcopy(cases["mxfp4"].config)
    text = config["text_config"]
    text[key] = {**text[key], **value} if key == "linear_attn_config" else value
    with pytest.raises(UnsupportedModelError, match=next(iter(value)) if isinstance(value, dict) else key):
        model_from_config(config)


def without(mapping, key):
    return {name: value for name, value in mapping.items() if name != key}


def test_no_key_of_the_architecture_has_a_default(cases):
    text = cases["mxfp4"].config["text_config"]
    texts = {key: without(text, key) for key in text.keys() - SPARE}
    linear = text["linear_attn_config"]
    sizes = linear.keys() - {"use_full_rank_gate"}
    texts |= {key: {**text, "linear_attn_config": without(linear, key)} for key in sizes}
    for key, shortened in texts.items():
        # removesuffix: num_experts_per_token has another name, num_experts_per_tok
        with pytest.raises(UnsupportedModelError, match=key.removesuffix("en")):
            model_from_config({"model_type": "kimi_k3", "text_config": shortened})
