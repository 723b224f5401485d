"""FP8 and MXFP4 checkpoints are kept packed, bit for bit, in every arrangement that they are published in."""

import numpy as np
import pytest
from checkpoint_maker import write_tensors
from fake_model import FakeModel

from uringinfer.container import Container
from uringinfer.errors import IntegrityError, UnsupportedModelError
from uringinfer.models.base import ExpertLayer, ExpertPart, ExpertSource, TensorGroup, TensorSpec
from uringinfer.packing.packer import pack

ROWS, COLS, EXPERTS = 320, 192, 3
RNG = np.random.default_rng(0)


def codes(*shape):
    return RNG.integers(0, 0x7E, shape, dtype=np.uint8)


def packed(tmp_path, tensors, *specs, experts=(), **options):
    write_tensors(tmp_path / "m", tensors)
    model = FakeModel(TensorGroup("g", specs), experts=experts, ignored=())
    pack(tmp_path / "m", tmp_path / "m.uring", make_model=lambda config: model, **options)
    return Container.open(tmp_path / "m.uring")


def part_bytes(container, place):
    start = place.file_offset
    return container.trunk_path.read_bytes()[start : start + place.part.nbytes]


def padded(data):
    return data + bytes(-len(data) % 64)


def as_dtype(scales, dtype):
    """float32 scales, powers of two, in a dtype that holds them exactly."""
    if dtype == "F32":
        return scales.astype(np.float32)
    if dtype == "BF16":
        return (scales.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return (np.log2(scales) + 127).astype(np.uint8)


MATRIX = TensorSpec("w", (ROWS, COLS), ("w.weight",))


@pytest.mark.parametrize(("block", "name"), [(128, "fp8"), (64, "fp8_b64"), (32, "fp8_b32"), (16, "fp8_b16")])
@pytest.mark.parametrize("dtype", ["F32", "BF16", "F8_E8M0"])
def test_a_matrix_of_the_trunk_keeps_its_codes_and_its_scales_in_float32(tmp_path, block, name, dtype):
    weights = codes(ROWS, COLS)
    scales = 2.0 ** RNG.integers(-20, 3, (-(-ROWS // block), -(-COLS // block)))
    stored = as_dtype(scales, dtype)
    container = packed(
        tmp_path,
        {
            "w.weight": ("F8_E4M3", weights, weights.shape),
            "w.weight_scale_inv": (dtype, stored, stored.shape),
        },
        MATRIX,
    )
    (place,) = container.tensors["w"]
    assert place.part.format.name == name
    assert part_bytes(container, place) == padded(weights.tobytes()) + scales.astype(np.float32).tobytes()


def test_panels_of_a_matrix_take_the_scales_of_their_own_rows(tmp_path):
    weights, scales = codes(ROWS, COLS), RNG.random((3, 2), np.float32)
    container = packed(
        tmp_path,
        {"w.weight": ("F8_E4M3", weights, weights.shape), "w.scale": ("F32", scales, scales.shape)},
        MATRIX,
        segment=128 * COLS + 4096,
    )
    places = container.tensors["w"]
    assert [(p.part.row_start, p.part.row_stop) for p in places] == [(0, 128), (128, 256), (256, 320)]
    for number, place in enumerate(places):
        rows = weights[place.part.row_start : place.part.row_stop]
        assert part_bytes(container, place) == padded(rows.tobytes()) + scales[number].tobytes()


@pytest.mark.parametrize("stacked", [False, True])
def test_fp8_experts_keep_codes_and_scales(tmp_path, stacked):
    weights, scales = codes(EXPERTS, 2 * 256, COLS), RNG.random((EXPERTS, 4, 2), np.float32)
    if stacked:
        tensors = {
            "e.gu": ("F8_E4M3", weights, weights.shape),
            "e.gu_scale_inv": ("F32", scales, scales.shape),
        }
        sources = (ExpertSource("e.gu"), ExpertSource("e.gu", first=256))
    else:
        tensors = {}
        for expert in range(EXPERTS):
            for half, name in enumerate("gu"):
                rows = weights[expert, half * 256 : (half + 1) * 256]
                factors = scales[expert, half * 2 : half * 2 + 2]
                tensors[f"e.{expert}.{name}.weight"] = ("F8_E4M3", rows, rows.shape)
                tensors[f"e.{expert}.{name}.weight_scale_inv"] = ("F32", factors, factors.shape)
        sources = (ExpertSource("e.{expert}.g.weight"), ExpertSource("e.{expert}.u.weight"))
    parts = tuple(
        ExpertPart(name, (256, COLS), (source,)) for name, source in zip(("gate", "up"), sources, strict=True)
    )
    container = packed(tmp_path, tensors, experts=(ExpertLayer(0, EXPERTS, parts),))
    bank = container.banks[0]
    data = container.bank_paths(bank)[0].read_bytes()
    for expert in range(EXPERTS):
        for half, kept in enumerate(bank.parts):
            start = expert * bank.record_bytes + kept.offset
            rows, factors = weights[expert, half * 256 :][:256], scales[expert, half * 2 :][:2]
            assert data[start : start + kept.nbytes] == padded(rows.tobytes()) + factors.tobytes()
            assert kept.format.name == "fp8"


# a stored matrix holds gate and up, concatenated or interleaved: (first, step) of each
ARRANGEMENTS = {"concatenated": ((0, 1), (64, 1)), "interleaved": ((0, 2), (1, 2))}


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("grouped", [False, True])
def test_mxfp4_experts_keep_blocks_and_scales(tmp_path, arrangement, grouped):
    blocks = RNG.integers(0, 256, (EXPERTS, 128, COLS // 2), dtype=np.uint8)
    scales = RNG.integers(100, 130, (EXPERTS, 128, COLS // 32), dtype=np.uint8)
    shape = (EXPERTS, 128, COLS // 32, 16) if grouped else blocks.shape
    tensors = {"e.blocks": ("U8", blocks, shape), "e.scales": ("F8_E8M0", scales, scales.shape)}
    parts = tuple(
        ExpertPart(name, (64, COLS), (ExpertSource("e.blocks", first=first, step=step, scales="e.scales"),))
        for name, (first, step) in zip(("gate", "up"), ARRANGEMENTS[arrangement], strict=True)
    )
    container = packed(tmp_path, tensors, experts=(ExpertLayer(0, EXPERTS, parts),))
    bank = container.banks[0]
    data = container.bank_paths(bank)[0].read_bytes()
    for expert in range(EXPERTS):
        for kept, (first, step) in zip(bank.parts, ARRANGEMENTS[arrangement], strict=True):
            start = expert * bank.record_bytes + kept.offset
            rows = slice(first, first + 63 * step + 1, step)
            expected = padded(blocks[expert, rows].tobytes()) + scales[expert, rows].tobytes()
            assert data[start : start + kept.nbytes] == expected
            assert kept.format.name == "mxfp4"


def test_mxfp4_experts_of_one_tensor_each_are_found_with_their_scales(tmp_path):
    blocks = RNG.integers(0, 256, (EXPERTS, 64, COLS // 2), dtype=np.uint8)
    scales = RNG.integers(100, 130, (EXPERTS, 64, COLS // 32), dtype=np.uint8)
    tensors = {}
    for expert in range(EXPERTS):
        tensors[f"e.{expert}.weight_packed"] = ("U8", blocks[expert], blocks[expert].shape)
        tensors[f"e.{expert}.weight_scale"] = ("U8", scales[expert], scales[expert].shape)
    source = ExpertSource("e.{expert}.weight_packed", scales="e.{expert}.weight_scale")
    layer = ExpertLayer(0, EXPERTS, (ExpertPart("gate", (64, COLS), (source,)),))
    container = packed(tmp_path, tensors, experts=(layer,))
    data = (container.path / "experts-L0.bin").read_bytes()[container.banks[0].record_bytes :]
    assert data.startswith(padded(blocks[1].tobytes()) + scales[1].tobytes())


@pytest.mark.parametrize(
    ("scales", "error", "message"),
    [
        (None, UnsupportedModelError, r"w\.weight is FP8 without block scales; w\.weight_scale_inv was"),
        (("F32", np.ones((2, 2), np.float32), (2, 2)), UnsupportedModelError, r"scales no square blocks"),
        (("I32", np.ones((3, 2), np.int32), (3, 2)), UnsupportedModelError, r"scale_inv \(I32 \[3, 2\]\)"),
    ],
)
def test_fp8_without_usable_scales_is_refused_by_name(tmp_path, scales, error, message):
    weights = codes(ROWS, COLS)
    tensors = {"w.weight": ("F8_E4M3", weights, weights.shape)}
    if scales is not None:
        tensors["w.weight_scale_inv"] = scales
    with pytest.raises(error, match=message):
        packed(tmp_path, tensors, MATRIX)


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ({"e.scales": None}, IntegrityError, r"its scales e\.scales are missing"),
        ({"e.scales": ("U8", codes(2, 64, 5), (2, 64, 5))}, IntegrityError, r"e\.blocks has the shape"),
        (
            {"e.scales": ("F32", np.ones((2, 64, 6), np.float32), (2, 64, 6))},
            UnsupportedModelError,
            "no MXFP4",
        ),
        ({"e.blocks": ("U8", codes(2, 63, 96), (2, 63, 96))}, IntegrityError, r"e\.blocks has the shape"),
    ],
)
def test_mxfp4_that_is_not_whole_is_refused_by_name(tmp_path, tensors, error, message):
    good = {
        "e.blocks": ("U8", codes(2, 64, 96), (2, 64, 96)),
        "e.scales": ("U8", codes(2, 64, 6), (2, 64, 6)),
    }
    merged = {name: tensor for name, tensor in (good | tensors).items() if tensor is not None}
    layer = ExpertLayer(
        0, 2, (ExpertPart("gate", (64, COLS), (ExpertSource("e.blocks", scales="e.scales"),)),)
    )
    with pytest.raises(error, match=message):
        packed(tmp_path, merged, experts=(layer,))
