"""Experts in every layout of checkpoints, against slices of the arrays that they were written from."""

import numpy as np
import pytest
from checkpoint_maker import write_tensors
from fake_model import FakeModel

from uringinfer.container import Container
from uringinfer.errors import IntegrityError, UnsupportedModelError
from uringinfer.models.base import ExpertLayer, ExpertPart, ExpertSource, TensorGroup, TensorSpec
from uringinfer.packing.packer import pack

EXPERTS, INNER, HIDDEN = 5, 24, 40
TRUNK = TensorGroup("head", (TensorSpec("norm", (HIDDEN,), ("norm",), kind="vector"),))
NORM = {"norm": ("F32", np.ones(HIDDEN, np.float32), (HIDDEN,))}


def random(shape, seed, dtype=np.float16):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


GATE, UP, DOWN = (
    random((EXPERTS, INNER, HIDDEN), 1),
    random((EXPERTS, INNER, HIDDEN), 2),
    random((EXPERTS, HIDDEN, INNER), 3),
)


def f16(array):
    return ("F16", array, array.shape)


def part(name, rows, cols, *sources):
    return ExpertPart(name, (rows, cols), sources)


def three(gate, up, down):
    return (
        part("gate", INNER, HIDDEN, *gate),
        part("up", INNER, HIDDEN, *up),
        part("down", HIDDEN, INNER, *down),
    )


def split_names(names=("gate_proj", "up_proj", "down_proj")):
    return three(*([ExpertSource(f"e.{{expert}}.{name}.weight")] for name in names))


def split_tensors(names=("gate_proj", "up_proj", "down_proj")):
    return {
        f"e.{expert}.{name}.weight": f16(stack[expert])
        for name, stack in zip(names, (GATE, UP, DOWN), strict=True)
        for expert in range(EXPERTS)
    }


INTERLEAVED = np.stack([GATE, UP], axis=2).reshape(EXPERTS, 2 * INNER, HIDDEN)

LAYOUTS = {
    "split": (split_names(), split_tensors()),
    "w1/w3/w2": (split_names(("w1", "w3", "w2")), split_tensors(("w1", "w3", "w2"))),
    "stacked, fused one after the other": (
        three([ExpertSource("e.gu")], [ExpertSource("e.gu", first=INNER)], [ExpertSource("e.d")]),
        {"e.gu": f16(np.concatenate([GATE, UP], axis=1)), "e.d": f16(DOWN)},
    ),
    "stacked, interleaved": (
        three([ExpertSource("e.gu", step=2)], [ExpertSource("e.gu", first=1, step=2)], [ExpertSource("e.d")]),
        {"e.gu": f16(INTERLEAVED), "e.d": f16(DOWN)},
    ),
    "stacked, transposed and interleaved": (
        three(
            [ExpertSource("e.gu", transposed=True, step=2)],
            [ExpertSource("e.gu", transposed=True, first=1, step=2)],
            [ExpertSource("e.d", transposed=True)],
        ),
        {
            "e.gu": f16(np.ascontiguousarray(INTERLEAVED.transpose(0, 2, 1))),
            "e.d": f16(np.ascontiguousarray(DOWN.transpose(0, 2, 1))),
        },
    ),
    "split, transposed": (
        three(
            [ExpertSource("e.{expert}.g", transposed=True)],
            [ExpertSource("e.{expert}.u", transposed=True)],
            [ExpertSource("e.{expert}.d", transposed=True)],
        ),
        {
            f"e.{expert}.{name}": f16(np.ascontiguousarray(stack[expert].T))
            for name, stack in (("g", GATE), ("u", UP), ("d", DOWN))
            for expert in range(EXPERTS)
        },
    ),
}


def packed(tmp_path, parts, tensors, **options):
    write_tensors(tmp_path / "m", NORM | tensors)
    model = FakeModel(TRUNK, experts=(ExpertLayer(3, EXPERTS, parts),), ignored=())
    pack(tmp_path / "m", tmp_path / "m.uring", make_model=lambda config: model, **options)
    return Container.open(tmp_path / "m.uring")


def record(container, expert):
    """Name -> bytes of the parts of one expert's record."""
    bank = container.banks[3]
    data = container.bank_paths(bank)[0].read_bytes()[expert * bank.record_bytes :]
    return {p.name: data[p.offset : p.offset + p.nbytes] for p in bank.parts}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("small_buffers", [False, True])
def test_each_record_holds_its_experts_matrices_bit_for_bit(tmp_path, monkeypatch, name, small_buffers):
    if small_buffers:
        monkeypatch.setattr("uringinfer.packing.packer.BUFFER_BYTES", 4096)
        monkeypatch.setattr("uringinfer.packing.runs.TransposedRun.READ_BYTES", 100)
    container = packed(tmp_path, *LAYOUTS[name])
    for expert in range(EXPERTS):
        assert record(container, expert) == {
            "gate": GATE[expert].tobytes(),
            "up": UP[expert].tobytes(),
            "down": DOWN[expert].tobytes(),
        }


def test_records_are_aligned_padded_and_named_by_layer(tmp_path):
    bank = packed(tmp_path, *LAYOUTS["split"]).banks[3]
    size = 2 * INNER * HIDDEN
    assert (bank.layer, bank.file, bank.num_experts, bank.record_bytes) == (
        3,
        "experts-L3.bin",
        EXPERTS,
        8192,
    )
    assert [(p.name, p.format.name, p.shape, p.offset) for p in bank.parts] == [
        ("gate", "f16", (INNER, HIDDEN), 0),
        ("up", "f16", (INNER, HIDDEN), size),
        ("down", "f16", (HIDDEN, INNER), 2 * size),
    ]
    assert size % 64 == 0


def test_the_first_layout_that_the_checkpoint_has_is_taken(tmp_path):
    parts = three(
        [ExpertSource("e.{expert}.gate_proj.weight"), ExpertSource("e.gu")],
        [ExpertSource("e.{expert}.up_proj.weight"), ExpertSource("e.gu", first=INNER)],
        [ExpertSource("e.{expert}.down_proj.weight"), ExpertSource("e.d")],
    )
    container = packed(tmp_path, parts, LAYOUTS["stacked, fused one after the other"][1])
    assert record(container, 4)["up"] == UP[4].tobytes()


BIASES = random((EXPERTS, 2 * INNER), 4, np.float32)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("stacked", [True, False])
def test_biases_are_kept_in_float32(tmp_path, dtype, stacked):
    # values that all three dtypes hold exactly
    values = np.round(BIASES * 8) / 8
    stored = {
        "F32": values,
        "F16": values.astype(np.float16),
        "BF16": (values.view(np.uint32) >> 16).astype(np.uint16),
    }[dtype]
    source = "e.b" if stacked else "e.{expert}.b"
    parts, tensors = LAYOUTS["split"]
    bias = (
        ExpertPart("gate_bias", (INNER,), (ExpertSource(source, step=2),)),
        ExpertPart("up_bias", (INNER,), (ExpertSource(source, first=1, step=2),)),
    )
    if stacked:
        tensors = tensors | {"e.b": (dtype, stored, stored.shape)}
    else:
        tensors = tensors | {f"e.{e}.b": (dtype, stored[e], stored[e].shape) for e in range(EXPERTS)}
    container = packed(tmp_path, (*parts, *bias), tensors)
    assert container.banks[3].parts[-1].format.name == "f32"
    for expert in range(EXPERTS):
        assert record(container, expert)["gate_bias"] == values[expert, 0::2].tobytes()
        assert record(container, expert)["up_bias"] == values[expert, 1::2].tobytes()


def test_a_missing_expert_is_named(tmp_path):
    parts, tensors = LAYOUTS["split"]
    tensors = {name: tensor for name, tensor in tensors.items() if name != "e.3.up_proj.weight"}
    with pytest.raises(IntegrityError, match=r"1 tensors that fake needs are missing: e\.3\.up_proj\.weight"):
        packed(tmp_path, parts, tensors)


def test_an_expert_that_nobody_uses_is_named(tmp_path):
    parts, tensors = LAYOUTS["split"]
    with pytest.raises(IntegrityError, match=r"1 tensors left over .*: e\.5\.up_proj\.weight"):
        packed(tmp_path, parts, tensors | {"e.5.up_proj.weight": f16(UP[0])})


def test_experts_of_different_dtypes_in_one_layer_are_refused(tmp_path):
    parts, tensors = LAYOUTS["split"]
    odd = UP[2].astype(np.float32)
    with pytest.raises(IntegrityError, match=r"layer 3: e\..\.up_proj\.weight is f.., but e\.2\.up_proj"):
        packed(tmp_path, parts, tensors | {"e.2.up_proj.weight": ("F32", odd, odd.shape)})


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("e.gu", np.concatenate([GATE, UP, UP], axis=1)),
        ("e.gu", GATE),
        ("e.gu", np.concatenate([GATE, UP], axis=1)[:4]),
        ("e.d", DOWN.reshape(EXPERTS, INNER, HIDDEN)),
        ("e.d", DOWN[0]),
    ],
)
def test_stacked_experts_of_another_shape_are_refused(tmp_path, name, tensor):
    parts, tensors = LAYOUTS["stacked, fused one after the other"]
    with pytest.raises(IntegrityError, match=rf"tensor {name} has the shape \["):
        packed(tmp_path, parts, tensors | {name: f16(np.ascontiguousarray(tensor))})


def test_experts_of_a_dtype_that_no_format_keeps_are_refused_by_name(tmp_path):
    parts, tensors = LAYOUTS["split"]
    tensors = {name: ("I16", array, shape) for name, (_, array, shape) in tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"e\.0\.gate_proj\.weight is of dtype I16"):
        packed(tmp_path, parts, tensors)


def test_the_number_of_jobs_does_not_change_a_byte(tmp_path):
    parts, tensors = LAYOUTS["split"]
    one = packed(tmp_path / "a", parts, tensors, jobs=1)
    three_jobs = packed(tmp_path / "b", parts, tensors, jobs=3)
    for name in ("experts-L3.bin", "manifest.json"):
        assert (one.path / name).read_bytes() == (three_jobs.path / name).read_bytes()
