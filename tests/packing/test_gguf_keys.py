"""GGUF's keys are honoured, harmless, or refused by name; so are types of tensors."""

import struct

import gguf
import numpy as np
import pytest
from gguf_maker import gguf_name, make_gguf, weights

from uringinfer.errors import UnsupportedModelError
from uringinfer.packing.gguf import GgufSource

QUERY = "model.layers.1.self_attn.q_proj.weight"


def config_of(tmp_path, extra, **options):
    source = GgufSource.open(make_gguf(tmp_path / "m.gguf", weights(), extra=extra, **options))
    source.close()
    return source.config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.rope.dimension_count", 8),
        ("llama.rope.scaling.attn_factor", 0.5),
        ("llama.attention.sliding_window", 64),
        ("llama.attention.causal", False),
        ("llama.attention.value_length", 8),
        ("llama.final_logit_softcapping", 30.0),
        ("llama.some.new.key", 3),
        ("llama.rope.scaling.yarn_log_multiplier", 0.1),
    ],
)
def test_a_key_that_changes_results_is_refused_by_its_name(tmp_path, key, value):
    def extra(writer):
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        add[type(value)](key, value)
        if "yarn" in key:
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(4.0)

    with pytest.raises(UnsupportedModelError, match=key):
        config_of(tmp_path, extra)


@pytest.mark.parametrize(
    ("key", "value"),
    [("llama.attention.sliding_window", 512), ("llama.vocab_size", 320), ("llama.expert_count", 0)],
)
def test_a_key_that_switches_nothing_on_is_harmless(tmp_path, key, value):
    config_of(tmp_path, lambda writer: writer.add_uint32(key, value))


def test_keys_of_others_are_none_of_the_architectures(tmp_path):
    config_of(tmp_path, lambda writer: writer.add_uint32("somebody.imatrix.entries", 3))


def test_a_factor_without_a_type_scales_linearly(tmp_path):
    config = config_of(tmp_path, lambda writer: writer.add_rope_scaling_factor(4.0))
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


def test_the_old_key_of_linear_scaling_is_honoured(tmp_path):
    config = config_of(tmp_path, lambda writer: writer.add_float32("llama.rope.scale_linear", 4.0))
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


def test_scaling_that_is_switched_off_scales_nothing(tmp_path):
    def extra(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        writer.add_rope_scaling_factor(4.0)

    assert "rope_scaling" not in config_of(tmp_path, extra)


def test_yarns_betas_and_factor_are_honoured(tmp_path):
    def extra(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(64)
        writer.add_float32("llama.rope.scaling.attn_factor", 0.5)
        writer.add_rope_scaling_yarn_beta_fast(16.0)
        writer.add_rope_scaling_yarn_beta_slow(2.0)

    scaling = config_of(tmp_path, extra)["rope_scaling"]
    assert scaling.pop("attention_factor") == pytest.approx(0.5 * (0.1 * np.log(4) + 1))
    assert scaling == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
    }


@pytest.mark.parametrize(
    ("kind", "what"), [("adapter", "a LoRA adapter"), ("mmproj", "the vision part"), ("imatrix", "an import")]
)
def test_a_file_that_holds_no_model_says_what_it_holds(tmp_path, kind, what):
    with pytest.raises(UnsupportedModelError, match=f"holds {what}"):
        config_of(tmp_path, lambda writer: writer.add_type(kind))


def test_an_adapter_without_a_type_is_known_by_its_keys(tmp_path):
    with pytest.raises(UnsupportedModelError, match="holds a LoRA adapter"):
        config_of(tmp_path, lambda writer: writer.add_float32("adapter.lora.alpha", 16.0))


def set_type(path, name, number):
    """Writes another number over the type of a tensor in the header."""
    data, wanted = bytearray(path.read_bytes()), gguf_name(name).encode()
    at = data.index(struct.pack("<Q", len(wanted)) + wanted) + 8 + len(wanted)
    (dimensions,) = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at + 4 + 8 * dimensions, number)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (41, "of type 41, Q1_0|of the unknown type 41"),
        (42, "of the unknown type 42"),
        (31, "of type 31, Q4_0_4_4"),
        (9, "of type 9, Q8_1"),
        (139, r"of type 139, IQ4_K of ik_llama\.cpp"),
        (212, r"of type 212, Q4_K_R4 of ik_llama\.cpp"),
    ],
)
def test_a_type_that_is_not_known_is_refused_by_number_and_a_forks_by_its_name(tmp_path, number, said):
    path = make_gguf(tmp_path / "m.gguf", weights())
    set_type(path, QUERY, number)
    with pytest.raises(UnsupportedModelError, match=rf"'blk\.1\.attn_q\.weight' is {said}"):
        GgufSource.open(path)
