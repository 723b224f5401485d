import json
import os
import struct

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import quantize
from gguf_maker import (
    HEADS,
    HIDDEN,
    KV_HEADS,
    byte_level_tokenizer,
    gguf_name,
    make_gguf,
    permute,
    smollm_pre_tokenizer,
    weights,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.container import Container
from uringinfer.errors import IntegrityError, UnsupportedModelError, UringinferError
from uringinfer.packing.gguf import GgufSource
from uringinfer.packing.gguf_header import read_gguf_header
from uringinfer.packing.gguf_names import NAMES
from uringinfer.packing.packer import pack

QUERY = "model.layers.1.self_attn.q_proj.weight"


def rows_of(source, name, start, stop):
    tensor = source.tensors[name]
    out = np.empty((stop - start) * tensor.row_bytes, np.uint8)
    source.read_rows(name, start, stop, out)
    return out


def test_the_header_agrees_with_the_gguf_packages_reader(tmp_path):
    kinds = {"lm_head.weight": Kind.Q8_0, QUERY: Kind.F16}
    path = make_gguf(
        tmp_path / "m.gguf", weights(), kinds=kinds, tokenizer=byte_level_tokenizer(smollm_pre_tokenizer())
    )
    header, reader = read_gguf_header(path), gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert header.metadata == fields
    assert {t.name: (t.type, t.shape[::-1], t.offset, t.nbytes) for t in header.tensors.values()} == {
        t.name: (t.tensor_type, tuple(t.shape.tolist()), t.data_offset, t.n_bytes) for t in reader.tensors
    }


def test_permuted_rows_come_back_in_the_models_order(tmp_path):
    tensors = weights(bias=True)
    source = GgufSource.open(make_gguf(tmp_path / "m.gguf", tensors))
    assert not np.array_equal(permute(tensors[QUERY], HEADS), tensors[QUERY])
    for name, values in tensors.items():
        for start, stop in [(0, len(values)), (3, 21), (len(values) - 1, len(values))]:
            assert rows_of(source, name, start, stop).tobytes() == values[start:stop].tobytes(), name


def test_qwen_rows_are_not_permuted(tmp_path):
    tensors = weights(bias=True)
    source = GgufSource.open(make_gguf(tmp_path / "m.gguf", tensors, arch="qwen2"))
    assert rows_of(source, QUERY, 0, HIDDEN).tobytes() == tensors[QUERY].tobytes()


@pytest.mark.parametrize(("kind", "dtype"), [(Kind.F16, "F16"), (Kind.BF16, "BF16"), (Kind.F32, "F32")])
def test_float_tensors_are_kept_bit_for_bit(tmp_path, kind, dtype):
    name = "lm_head.weight"
    tensors = weights()
    source = GgufSource.open(make_gguf(tmp_path / "m.gguf", tensors, kinds={name: kind}))
    assert source.tensors[name].dtype == dtype
    assert rows_of(source, name, 0, 320).tobytes() == quantize(tensors[name], kind).tobytes()


def test_the_config_is_that_of_a_hugging_face_checkpoint(tmp_path):
    source = GgufSource.open(
        make_gguf(
            tmp_path / "m.gguf", weights(tied=True), tokenizer=byte_level_tokenizer(smollm_pre_tokenizer())
        )
    )
    assert source.config == {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 320,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "attention_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def add_linear(writer):
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(4.0)


def add_yarn(writer):
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(256)


def add_llama3(factors):
    def add(writer):
        writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))

    return add


@pytest.mark.parametrize(
    ("extra", "scaling"),
    [
        (add_linear, {"rope_type": "linear", "factor": 4.0}),
        (add_yarn, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}),
    ],
)
def test_rotary_scaling_is_put_in_the_configs_words(tmp_path, extra, scaling):
    source = GgufSource.open(make_gguf(tmp_path / "m.gguf", weights(), extra=extra))
    assert source.config["rope_scaling"] == scaling


def test_llama_3s_rotary_factors_are_recognised(tmp_path):
    # by the formula of llama.cpp's converter, for head_dim 16, theta 100000, factor 32
    factors = []
    for channel in range(0, 16, 2):
        wavelength = 2 * np.pi * 100000.0 ** (channel / 16)
        if wavelength < 8192 / 4:
            factors.append(1.0)
        elif wavelength > 8192:
            factors.append(32.0)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            factors.append(1 / ((1 - smooth) / 32 + smooth))
    source = GgufSource.open(make_gguf(tmp_path / "m.gguf", weights(), extra=add_llama3(factors)))
    assert source.config["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    factors[3] *= 1.01
    with pytest.raises(UnsupportedModelError, match="not Llama 3's"):
        GgufSource.open(make_gguf(tmp_path / "other.gguf", weights(), extra=add_llama3(factors)))


def test_a_packed_gguf_file_is_a_container_with_the_models_tensors(tmp_path):
    tensors = weights(tied=True)
    path = make_gguf(tmp_path / "m.gguf", tensors, tokenizer=byte_level_tokenizer(smollm_pre_tokenizer()))
    report = pack(path, tmp_path / "m.uring")
    container = Container.open(tmp_path / "m.uring")
    place = container.tensors["layers.0.self_attn.k_proj"][0]
    trunk = container.trunk_path.read_bytes()
    expected = tensors["model.layers.0.self_attn.k_proj.weight"].tobytes()
    assert trunk[place.file_offset : place.file_offset + place.part.nbytes] == expected
    assert [file.name for file in container.manifest.files] == [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "row_checksums.bin",
    ]
    assert report.notes == ()
    assert json.loads((tmp_path / "m.uring" / "config.json").read_text()) == container.manifest.config


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE), "rotary scaling 'longrope'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path, extra, message):
    with pytest.raises(UnsupportedModelError, match=message):
        GgufSource.open(make_gguf(tmp_path / "m.gguf", weights(), extra=extra))


def test_one_experts_tensors_of_an_old_mixtral_are_known():
    names = NAMES["llama"]
    got = [names.checkpoint_name(f"blk.3.ffn_{part}.5.weight") for part in ("gate", "down", "up")]
    assert got == [f"model.layers.3.block_sparse_moe.experts.5.{own}.weight" for own in ("w1", "w2", "w3")]


@pytest.mark.parametrize("key", ["llama.block_count", "llama.attention.key_length"])
def test_a_number_that_no_model_has_is_refused_at_once(tmp_path, key):
    def extra(writer):
        writer.kv_data[0].pop(key, None)
        writer.add_uint32(key, 2**32 - 2)
        writer.add_tensor("rope_freqs.weight", np.ones(8, np.float32))

    with pytest.raises(UringinferError):
        GgufSource.open(make_gguf(tmp_path / "m.gguf", weights(), extra=extra))


def test_another_architecture_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(
        UnsupportedModelError, match=r"architecture 'gpt2'; supported in GGUF: deepseek2, glm4moe"
    ):
        GgufSource.open(make_gguf(tmp_path / "m.gguf", weights(), arch="gpt2"))


def test_a_short_file_is_named_with_what_it_lacks(tmp_path):
    path = make_gguf(tmp_path / "m.gguf", weights())
    data = path.read_bytes()
    for size in (len(data) - 100, 2000, 3):
        path.write_bytes(data[:size])
        with pytest.raises(IntegrityError, match=r"bytes? short.*resume the download"):
            read_gguf_header(path)
    path.write_bytes(data[:100])
    with pytest.raises(IntegrityError, match=r"more than the file's 100 bytes can hold; resume the download"):
        read_gguf_header(path)


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    for data, message in [(b"", "is empty"), (b"PK\x03\x04" + bytes(40), "is no GGUF file")]:
        (tmp_path / "m.gguf").write_bytes(data)
        with pytest.raises(IntegrityError, match=message):
            read_gguf_header(tmp_path / "m.gguf")
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 1, 0, 0))
    with pytest.raises(UnsupportedModelError, match="GGUF version 1"):
        read_gguf_header(tmp_path / "m.gguf")


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    return make_gguf(path, {"model.embed_tokens.weight": weights()["model.embed_tokens.weight"]})


@pytest.fixture(scope="module")
def small_content(small_file):
    return small_file.read_bytes()


@settings(max_examples=100)
@given(data=st.data())
def test_a_damaged_header_is_refused_in_one_line_or_read(small_file, small_content, data):
    path, content = small_file, bytearray(small_content)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, 700))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        GgufSource.open(path).close()
    except UringinferError as error:
        assert "\n" not in str(error)


def test_heads_of_the_fixture_differ_for_queries_and_keys():
    assert HEADS != KV_HEADS
    assert gguf_name(QUERY) == "blk.1.attn_q.weight"


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(IntegrityError, match=r"pipe\.gguf: is no regular file"):
        read_gguf_header(tmp_path / "pipe.gguf")
