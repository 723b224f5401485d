"""The layout of Kimi K3 against the published sizes, and the files that the scripts make of it."""

import json
import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from kimi_k3_layout import end_tensors, files, layer_tensors, text_config, vision_files
from make_kimi_k3 import SHAPES, write_checkpoint
from make_skeleton import write_skeleton

RELEASE = text_config()
SMALL = text_config(**SHAPES["tiny"])


def trunk_bytes(layer):
    return sum(tensor.nbytes for tensor in layer_tensors(RELEASE, layer) if tensor.dtype != "U8")


def test_every_kind_of_layer_has_its_published_size():
    assert trunk_bytes(0) == 2_341_213_184
    assert {trunk_bytes(layer) for layer in (*range(3, 92, 4), 92)} == {844_335_616}
    assert {trunk_bytes(layer) for layer in range(1, 92) if layer % 4 != 3} == {1_267_744_256}
    assert sum(trunk_bytes(layer) for layer in range(93)) == 108_811_877_376
    assert sum(tensor.nbytes for tensor in end_tensors(RELEASE)) == 4_697_663_488


def test_the_release_has_96_files_and_497_220_tensors():
    shards = [*files(RELEASE), *vision_files()]
    assert (len(shards), sum(map(len, shards))) == (96, 497_220)


def test_an_expert_is_one_run_of_six_tensors_behind_the_trunk():
    tensors = layer_tensors(RELEASE, 1)
    place = next(n for n, tensor in enumerate(tensors) if tensor.dtype == "U8")
    assert all(tensor.dtype == "U8" for tensor in tensors[place:])
    run = tensors[place : place + 6]
    assert [tensor.name.partition("experts.0.")[2] for tensor in run] == [
        f"{matrix}.weight_{part}" for matrix in ("w1", "w2", "w3") for part in ("packed", "scale")
    ]
    assert sum(tensor.nbytes for tensor in run) == 17_547_264


def headers(directory):
    """Name -> (file, dtype, shape) by the safetensors library."""
    found = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                found[name] = (path.name, part.get_dtype(), tuple(part.get_shape()))
    return found


def test_a_skeleton_has_the_names_and_shapes_of_a_checkpoint_and_no_data(tmp_path):
    write_checkpoint(tmp_path / "full", SMALL, seed=0)
    count, _ = write_skeleton(tmp_path / "hollow", SMALL)
    full, hollow = headers(tmp_path / "full"), headers(tmp_path / "hollow")
    assert len(hollow) == count
    assert {name: entry[1:] for name, entry in full.items()}.items() <= {
        name: entry[1:] for name, entry in hollow.items()
    }.items()
    index = json.loads((tmp_path / "hollow" / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {name: entry[0] for name, entry in hollow.items()}
    with safe_open(tmp_path / "hollow" / "model-00002-of-00012.safetensors", framework="np") as file:
        assert not np.any(file.get_tensor("language_model.model.layers.1.self_attn.A_log"))


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_checkpoint(tmp_path / name, SMALL, seed)
    one, same, other = ((tmp_path / name / "model-00002-of-00010.safetensors").read_bytes() for name in "abc")
    assert one == same != other


def drawn(checkpoint, part):
    """Name -> the distinct bytes of a quantised expert's matrices, by the safetensors library."""
    found = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(path, framework="np") as file:
            names = [name for name in file.keys() if name.endswith(part)]  # noqa: SIM118
            found |= {name: set(file.get_tensor(name).ravel().tolist()) for name in names}
    return found


def test_codes_take_every_value_and_scales_three_neighbours(tmp_path):
    write_checkpoint(tmp_path, SMALL, seed=0)
    codes, scales = drawn(tmp_path, "weight_packed"), drawn(tmp_path, "weight_scale")
    assert len(codes) == len(scales) > 0
    assert min(map(len, codes.values())) > 200
    assert {max(values) - min(values) for values in scales.values()} == {2}
