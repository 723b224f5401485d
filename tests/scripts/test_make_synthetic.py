import json
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from make_synthetic import layers_for_size, llama_config, llama_tensors, nbytes_of, write_checkpoint

SMALL = {"hidden": 64, "intermediate": 160, "heads": 4, "kv_heads": 2, "vocab": 500}


def test_every_tensor_of_the_index_can_be_read_back_with_its_shape(tmp_path):
    config = llama_config(layers=2, **SMALL)
    shapes = llama_tensors(config)
    write_checkpoint(tmp_path, config, shapes, shard_bytes=100_000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    for name, shape in shapes.items():
        with safe_open(tmp_path / index["weight_map"][name], framework="np") as file:
            assert tuple(file.get_slice(name).get_shape()) == shape


def test_weights_are_zero_mean_with_a_deviation_of_one_over_sqrt_of_the_columns(tmp_path):
    config = llama_config(layers=1, **SMALL)
    write_checkpoint(tmp_path, config, {"model.layers.0.mlp.up_proj.weight": (1000, 64)})
    raw = (tmp_path / "model-00001-of-00001.safetensors").read_bytes()[-1000 * 64 * 2 :]
    values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    assert abs(values.mean()) < 0.005
    assert values.std() == pytest.approx(1 / 8, rel=0.02)


def test_the_number_of_layers_follows_from_the_size():
    layers = layers_for_size(4 * 10**9)
    assert nbytes_of(llama_tensors(llama_config(layers=layers))) == pytest.approx(4e9, rel=0.02)


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    config = llama_config(layers=1, **SMALL)
    for name in ("a", "b"):
        write_checkpoint(tmp_path / name, config, llama_tensors(config), seed=7)
    file = "model-00001-of-00001.safetensors"
    assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
