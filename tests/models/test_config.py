"""Configs: old and new spelling, and the refusal of what cannot be honoured."""

import json

import pytest
from golden_files import DIRECTORY, arrays_of, feed, load

from uringinfer.errors import UnsupportedModelError
from uringinfer.models import model_from_config, supported_families


def old_style(config):
    """The config as transformers 4 spelled it."""
    config = dict(config)
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype", "bfloat16")
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    return config


@pytest.mark.parametrize("name", ["llama", "llama3_scaling", "llama_linear_scaling", "qwen3_yarn", "smollm3"])
def test_the_old_spelling_of_rotary_settings_means_the_same(name, kernels):
    golden = load(name)
    assert "rope_parameters" in golden.config
    expected = feed(golden.model(), golden.weights(kernels), golden.ids)
    golden.config = old_style(golden.config)
    assert feed(golden.model(), golden.weights(kernels), golden.ids).tobytes() == expected.tobytes()


def config_of(name, **changes):
    return {**load(name).config, **changes}


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("llama", {"hidden_act": "relu"}, "hidden_act"),
        ("llama", {"sliding_window": 8}, "sliding_window"),
        (
            "llama",
            {"sliding_window": 8, "max_window_layers": 1, "use_sliding_window": True},
            "sliding_window",
        ),
        ("llama", {"rope_ratio": 2.0}, "rope_ratio"),
        ("llama", {"layer_types": ["full_attention", "sliding_attention"] * 2}, "layer_types"),
        ("llama", {"attention_multiplier": 0.5}, "attention_multiplier"),
        ("llama", {"rope_interleaved": True}, "rope_interleaved"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("llama", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "rope_type"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type"),
        ("llama", {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1]}}, "mrope_section"),
        ("llama", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rotary"),
        ("llama", {"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
        (
            "llama",
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [1, 128]}},
            "weight_block_size",
        ),
        ("llama", {"hidden_size": -32}, "hidden_size"),
        ("llama", {"hidden_size": True}, "hidden_size"),
        ("llama", {"hidden_size": 1 << 80}, "hidden_size"),
        ("llama", {"num_hidden_layers": 1 << 30}, "num_hidden_layers"),
        ("llama", {"num_key_value_heads": 3}, "num_key_value_heads"),
        ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ("llama", {"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ("mistral", {"layer_types": ["full_attention"] * 3, "sliding_window": 8}, "layer_types"),
        ("mistral", {"attention_bias": True}, "attention_bias"),
        ("qwen2", {"layer_types": ["chunked_attention"] * 3}, "layer_types"),
        ("qwen3", {"mlp_bias": True}, "mlp_bias"),
        ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
    ],
)
def test_a_setting_that_cannot_be_honoured_is_refused_by_name(name, changes, named):
    with pytest.raises(UnsupportedModelError, match=named):
        model_from_config(config_of(name, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"head_dim": None},
        {"new_switch": False},
        {"attention_dropout": 0.1},
        {"num_beams": 1, "repetition_penalty": 1.0, "temperature": 0.6, "max_sequence_length": 2048},
        {"rope_ratio": 1.0, "logits_scaling": 1, "norm_type": "rmsnorm", "position_embedding_type": "rope"},
        {"layer_types": ["full_attention"] * 3, "sliding_window": None},
        {"sliding_window": 1 << 20},
        {"sliding_window": 8, "use_sliding_window": False, "max_window_layers": 2},
    ],
)
def test_a_setting_that_switches_nothing_on_is_accepted(changes):
    assert model_from_config(config_of("llama", **changes)).family == "llama"


def test_a_key_of_many_lines_is_shown_in_one():
    with pytest.raises(UnsupportedModelError) as caught:
        model_from_config(config_of("llama", **{"a\nkey" + "y" * 1000: 1}))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_missing_size_is_named():
    config = config_of("llama")
    del config["intermediate_size"]
    with pytest.raises(UnsupportedModelError, match="'intermediate_size' is 'missing'"):
        model_from_config(config)


@pytest.mark.parametrize("config", [{}, {"model_type": "gpt2"}, {"model_type": 5}, {"model_type": ["llama"]}])
def test_an_unknown_family_is_refused_with_the_list_of_supported_ones(config):
    with pytest.raises(UnsupportedModelError) as caught:
        model_from_config(config)
    assert all(family in str(caught.value) for family in supported_families())


def test_every_supported_family_has_a_golden_case():
    covered = set()
    for file in DIRECTORY.glob("*.npz"):
        covered.add(json.loads(str(arrays_of(file.stem)["config"]))["model_type"])
    assert covered == set(supported_families()) - {"kimi_k3"}  # has an oracle of its own: test_kimi_k3.py
