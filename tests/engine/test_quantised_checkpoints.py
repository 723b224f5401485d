"""Quantised safetensors checkpoints give the logits of their own weights as floats.

Tiny checkpoints are made in each layout by `quantised_maker`, which shares no code with the package,
together with what they are worth in float32. Published-like ones that somebody else made, each with the
logits of transformers in a reference.npz, are run if URINGINFER_QUANTISED names their directory.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from greedy_logits import load_for_logits

sys.path += [str(Path(__file__).parents[2] / "scripts"), str(Path(__file__).parents[1] / "packing")]
import quantised_maker as maker
from checkpoint_maker import edit_json, write_tensors
from make_synthetic import llama_config, llama_tensors
from synthetic_moe import moe_config, moe_tensors

from uringinfer.engine.opening import open_model
from uringinfer.packing.packer import pack

SMALL = {"layers": 2, "hidden": 256, "intermediate": 512, "heads": 4, "kv_heads": 2, "vocab": 200}
MIXTURE = {
    "layers": 2,
    "hidden": 128,
    "inner": 64,
    "experts": 6,
    "per_token": 2,
    "heads": 4,
    "kv_heads": 2,
    "vocab": 200,
}
IDS = list(range(5, 29))
AWQ = {"quant_method": "awq", "bits": 4, "version": "gemm"}
ORDERED = {"quant_method": "gptq", "bits": 4, "desc_act": True}
COMPRESSED = {"quant_method": "compressed-tensors"}
LAYOUTS = {
    "awq": (maker.awq, {}, AWQ),
    "gptq, ordered": (maker.gptq, {"act_order": True}, ORDERED),
    "int4": (maker.compressed_int4, {}, COMPRESSED),
    "nvfp4, compressed": (maker.nvfp4, {}, COMPRESSED),
    "nvfp4, modelopt": (maker.nvfp4, {"by_modelopt": True}, {"quant_method": "modelopt"}),
    "fp8 by row": (maker.fp8, {}, COMPRESSED),
    "mlx": (maker.mlx, {}, {"bits": 4, "group_size": 64}),
}
PUBLISHED = sorted(Path(os.environ.get("URINGINFER_QUANTISED", "/nowhere")).glob("*/reference.npz"))


def write_both(directory, make, options, quantization, *, mixture=False):
    """A tiny llama, or mixture of experts, in the layout, and the same in float32."""
    config = moe_config(**MIXTURE) if mixture else llama_config(**SMALL)
    shapes = moe_tensors(config) if mixture else llama_tensors(config)
    rng, packed, floats = np.random.default_rng(0), {}, {}
    for name, shape in shapes.items():
        if "proj" in name:
            tensors, values = make(rng, name.removesuffix(".weight"), *shape, **options)
            packed |= tensors
            floats[name] = maker.entry("F32", values)
        else:
            values = (rng.standard_normal(shape) / 8 + (len(shape) == 1)).astype(np.float32)
            packed[name] = floats[name] = maker.entry("F32", values)
    for kind, tensors in (("packed", packed), ("floats", floats)):
        write_tensors(directory / kind, tensors)
        edit_json(directory / kind / "config.json", lambda written: written.update(config))

    def set_quantization(written):
        written["quantization_config"] = quantization
        if "quant_method" not in quantization:
            written["quantization"] = quantization  # as MLX writes both

    edit_json(directory / "packed" / "config.json", set_quantization)


def logits_of(checkpoint, ids, native):
    container = checkpoint.with_name(f"{checkpoint.name}.uring")
    if not container.exists():
        pack(checkpoint, container, segment=65536)
    with load_for_logits(open_model(container, native=native)) as engine:
        return engine.session().feed(ids, all_logits=True)


@pytest.mark.parametrize(("make", "options", "quantization"), LAYOUTS.values(), ids=LAYOUTS)
def test_logits_are_those_of_the_same_weights_as_floats(tmp_path, make, options, quantization):
    write_both(tmp_path, make, options, quantization)
    expected = logits_of(tmp_path / "floats", IDS, native=False)
    for native in (None, False):
        got = logits_of(tmp_path / "packed", IDS, native)
        assert np.abs(got - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("layout", ["int4", "nvfp4, modelopt", "mlx"])
def test_experts_are_multiplied_packed_too(tmp_path, layout):
    make, options, quantization = LAYOUTS[layout]
    write_both(tmp_path, make, options, quantization, mixture=True)
    expected = logits_of(tmp_path / "floats", IDS, native=False)
    for native in (None, False):
        got = logits_of(tmp_path / "packed", IDS, native)
        assert np.abs(got - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.skipif(not PUBLISHED, reason="URINGINFER_QUANTISED names no directory of checkpoints")
@pytest.mark.parametrize("reference", PUBLISHED, ids=lambda path: path.parent.name)
def test_logits_of_checkpoints_by_others_are_those_of_transformers(tmp_path, reference):
    (tmp_path / "checkpoint").symlink_to(reference.parent)
    with np.load(reference) as arrays:
        ids, expected = arrays["ids"].tolist(), arrays["logits"]
    for native in (None, False):
        got = logits_of(tmp_path / "checkpoint", ids, native)
        assert np.abs(got - expected).max() < 1e-5 * np.abs(expected).max()
