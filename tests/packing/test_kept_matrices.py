"""Quantised safetensors checkpoints stay packed, and are worth what their makers' tools say, to the bit."""

import numpy as np
import pytest
import quantised_maker as maker
from checkpoint_maker import edit_json, write_tensors
from fake_model import FakeModel

from uringinfer.container import Container
from uringinfer.errors import UnsupportedModelError
from uringinfer.kernels.formats import Weight, decode
from uringinfer.models.base import ExpertLayer, ExpertPart, ExpertSource, TensorGroup, TensorSpec
from uringinfer.packing.packer import pack

ROWS, COLS, EXPERTS = 264, 512, 3
AWQ = {"quant_method": "awq", "bits": 4, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4}
ORDERED = {**GPTQ, "desc_act": True}

# layout -> (what makes it, with which options; the config's quantization; the format)
LAYOUTS = {
    "awq": (maker.awq, {}, AWQ, "q4_g128_f16_zeros"),
    "awq of 64": (maker.awq, {"group": 64}, AWQ, "q4_g64_f16_zeros"),
    "gptq": (maker.gptq, {}, GPTQ, "q4_g128_f16_zeros"),
    "gptq, groups of 256": (maker.gptq, {"group": 256}, GPTQ, "q4_g128_f16_zeros"),
    "gptq v2": (maker.gptq, {"version": 2}, {**GPTQ, "checkpoint_format": "gptq_v2"}, "q4_g128_f16_zeros"),
    "gptq, ordered": (maker.gptq, {"act_order": True}, ORDERED, "q4_g128_f16_zeros_order"),
    "int4": (maker.compressed_int4, {}, {}, "q4_g32_bf16"),
    "int4 of 128, f16": (maker.compressed_int4, {"group": 128, "dtype": "F16"}, {}, "q4"),
    "int4 by row": (maker.compressed_int4, {"group": None}, {}, "q4_g128_bf16"),
    "int4 with zeros": (maker.compressed_int4, {"symmetric": False}, {}, "q4_g32_bf16_zeros"),
    "nvfp4, compressed": (maker.nvfp4, {}, {}, "nvfp4_over"),
    "nvfp4, modelopt": (maker.nvfp4, {"by_modelopt": True}, {}, "nvfp4_times"),
    "fp8 by row": (maker.fp8, {}, {}, "fp8_row"),
    "fp8 by matrix": (maker.fp8, {"scaled_by": "matrix", "dtype": "F32"}, {}, "fp8_row"),
    "fp8 by block": (maker.fp8, {"scaled_by": "block"}, {}, "fp8"),
    "mlx": (maker.mlx, {}, {"bits": 4, "group_size": 64}, "q4_g64_bf16_biases"),
    "mlx of 8 bits, others of 4": (
        maker.mlx,
        {"bits": 8},
        {"bits": 4, "x.w": {"bits": 8}, **{f"e.{i}.up": {"bits": 8} for i in range(EXPERTS)}},
        "q8_g64_bf16_biases",
    ),
    "mlx of 32, f16": (maker.mlx, {"group": 32, "dtype": "F16"}, {"bits": 4}, "q4_g32_f16_biases"),
}
LAYOUT = pytest.mark.parametrize(("make", "options", "quantization", "form"), LAYOUTS.values(), ids=LAYOUTS)


def packed(tmp_path, tensors, model, quantization, **options):
    write_tensors(tmp_path / "m", tensors)
    edit_json(tmp_path / "m" / "config.json", lambda config: config.update(quantization_config=quantization))
    pack(tmp_path / "m", tmp_path / "m.uring", make_model=lambda config: model, **options)
    return Container.open(tmp_path / "m.uring")


def of_trunk(container):
    """The matrix w, its panels put together, and the formats they have."""
    data = np.fromfile(container.trunk_path, np.uint8)
    places = container.tensors["w"]
    panels = [
        Weight(p.part.format, p.part.rows, p.part.cols, data[p.file_offset :][: p.part.nbytes])
        for p in places
    ]
    return np.concatenate([decode(panel) for panel in panels]), [panel.format.name for panel in panels]


MATRIX = FakeModel(TensorGroup("g", (TensorSpec("w", (ROWS, COLS), ("x.w.weight",)),)), ignored=())


@LAYOUT
def test_a_matrix_of_the_trunk_stays_packed_and_keeps_its_values(tmp_path, make, options, quantization, form):
    tensors, values = make(np.random.default_rng(0), "x.w", ROWS, COLS, **options)
    matrix, formats = of_trunk(packed(tmp_path, tensors, MATRIX, quantization))
    np.testing.assert_array_equal(matrix, values)
    assert formats == [form]


@LAYOUT
def test_panels_take_the_scales_of_their_own_rows(tmp_path, make, options, quantization, form):
    tensors, values = make(np.random.default_rng(1), "x.w", ROWS, COLS, **options)
    matrix, formats = of_trunk(packed(tmp_path, tensors, MATRIX, quantization, segment=40_960))
    np.testing.assert_array_equal(matrix, values)
    assert len(formats) > 1


@LAYOUT
def test_experts_stay_packed_and_keep_their_values(tmp_path, make, options, quantization, form):
    tensors, values = {}, []
    for expert in range(EXPERTS):
        parts, worth = make(np.random.default_rng(expert), f"e.{expert}.up", 64, COLS, **options)
        tensors |= parts
        values.append(worth)
    check_experts(tmp_path, tensors, values, ExpertSource("e.{expert}.up.weight"), quantization, form)


def test_the_stacked_experts_of_mlx_become_records(tmp_path):
    tensors, values = maker.mlx(np.random.default_rng(0), "l.switch_mlp.up", 64, COLS, experts=EXPERTS)
    source = ExpertSource("l.experts.{expert}.up.weight")
    check_experts(tmp_path, tensors, values, source, {"bits": 4}, "q4_g64_bf16_biases")


def check_experts(tmp_path, tensors, values, source, quantization, form):
    layer = ExpertLayer(0, EXPERTS, (ExpertPart("up", (64, COLS), (source,)),))
    container = packed(tmp_path, tensors, FakeModel(experts=(layer,), ignored=()), quantization)
    bank = container.banks[0]
    (kept,) = bank.parts
    data = np.fromfile(container.bank_paths(bank)[0], np.uint8)
    for expert in range(EXPERTS):
        record = data[expert * bank.record_bytes + kept.offset :][: kept.nbytes]
        np.testing.assert_array_equal(decode(Weight(kept.format, 64, COLS, record)), values[expert])
    assert kept.format.name == form


def test_scales_of_activations_are_left_out_and_told(tmp_path):
    tensors, _ = maker.nvfp4(np.random.default_rng(0), "x.w", ROWS, COLS, by_modelopt=True)
    write_tensors(tmp_path / "m", tensors)
    result = pack(tmp_path / "m", tmp_path / "m.uring", make_model=lambda config: MATRIX)
    assert "1 tensors input_scale are left out: activations and caches are not quantised here" in result.notes


def test_what_is_stored_the_other_way_round_can_be_quantised_again(tmp_path):
    tensors, values = maker.awq(np.random.default_rng(0), "x.w", ROWS, COLS)
    container = packed(tmp_path, tensors, MATRIX, AWQ, trunk="f32", segment=300_000)
    np.testing.assert_array_equal(of_trunk(container)[0], values)


def changed(tensors, **others):
    return {**tensors, **{f"x.w.{name}": value for name, value in others.items()}}


def refused(layout, quantization=None, **others):
    make, options, kept, _ = LAYOUTS[layout]
    tensors, _ = make(np.random.default_rng(0), "x.w", ROWS, COLS, **options)
    return changed(tensors, **others), kept if quantization is None else quantization


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (refused("awq", {**AWQ, "bits": 3}), r"x\.w\.qweight is of 3 bits by awq"),
        (refused("awq", {**AWQ, "version": "gemv"}), r"x\.w\.qweight is AWQ's version 'gemv'"),
        (
            refused("gptq", {**GPTQ, "checkpoint_format": "marlin"}),
            r"x\.w\.qweight is in GPTQ's layout 'marlin'",
        ),
        (
            refused("gptq", qzeros=maker.entry("I32", np.full((4, ROWS // 8), 0xF0, np.uint32))),
            r"x\.w\.qzeros holds a zero point of 16",
        ),
        (
            refused("gptq, ordered", g_idx=maker.entry("I32", np.zeros(COLS, np.int32))),
            r"x\.w\.g_idx: its 4 groups differ in size",
        ),
        (refused("gptq, ordered", GPTQ), r"x\.w\.g_idx puts columns in another order"),
        (
            refused("int4", {"config_groups": {"group_0": {"weights": {"num_bits": 8}}}}),
            r"x\.w\.weight_packed is of 8 bits by compressed-tensors",
        ),
        (
            refused("awq", scales=maker.entry("F16", np.ones((3, ROWS), np.float16))),
            r"x\.w\.scales is F16 \[3, 264\]",
        ),
        (
            refused("int4", weight_g_idx=maker.entry("I32", np.zeros(COLS, np.int32))),
            r"x\.w\.weight_g_idx is I32 \[512\]",
        ),
        (
            refused("fp8 by row", weight_scale=maker.entry("F32", np.ones((2, 3), np.float32))),
            r"x\.w\.weight_scale is",
        ),
        (refused("mlx", {"bits": 6}), r"x\.w\.weight is of 6 bits by MLX"),
    ],
)
def test_what_no_format_keeps_exactly_is_refused_by_name(tmp_path, case, message):
    tensors, quantization = case
    with pytest.raises(UnsupportedModelError, match=message):
        packed(tmp_path, tensors, MATRIX, quantization)
