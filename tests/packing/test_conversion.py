"""Packs that change formats: which bytes, which errors, and that nothing but the formats decides them."""

import json
import tracemalloc

import numpy as np
import pytest
from checkpoint_maker import make_checkpoint, raw_tensors, write_tensors
from fake_model import FakeModel

from uringinfer.container import Container
from uringinfer.container.binding import bind_codebooks
from uringinfer.errors import IntegrityError, UsageError
from uringinfer.kernels.formats import ENCODED, Weight, decode, encode, weight_format
from uringinfer.models.base import ExpertLayer, ExpertPart, ExpertSource, TensorGroup, TensorSpec
from uringinfer.packing.packer import pack
from uringinfer.packing.runs import TransposedRun

RNG = np.random.default_rng(5)


@pytest.fixture
def few_rounds(monkeypatch):
    """Codebooks that are fitted fast, and not well."""
    monkeypatch.setattr("uringinfer.kernels.codebooks.ROUNDS", 2)
    monkeypatch.setattr("uringinfer.kernels.codebooks.JOINT_ROUNDS", 1)


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def bf16(values):
    """float32 -> bf16 by cutting, as uint16 and as the values that are left."""
    bits = (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def model_of(*specs, experts=()):
    return FakeModel(TensorGroup("g", specs), experts=experts, ignored=())


def packed(tmp_path, source, model, **options):
    write_tensors(tmp_path / "m", source)
    report = pack(tmp_path / "m", tmp_path / "m.uring", make_model=lambda config: model, **options)
    return None if report.dry_run else Container.open(tmp_path / "m.uring"), report


def trunk_weights(container, name):
    """The panels of a tensor, as the container has them."""
    trunk = np.fromfile(container.trunk_path, np.uint8)
    places = bind_codebooks(container).tensors[name]
    parts = [(p.part, trunk[p.file_offset : p.file_offset + p.part.nbytes]) for p in places]
    return [Weight(part.format, part.rows, part.cols, data) for part, data in parts]


@pytest.mark.usefixtures("few_rounds")
@pytest.mark.parametrize("name", [name for name in ENCODED if name != "bf16"])
@pytest.mark.parametrize("segment", ["layer", 4096])
def test_every_panel_is_what_the_format_makes_of_its_rows(tmp_path, name, segment):
    bits, values = bf16(RNG.standard_normal((300, 150)))
    model = model_of(TensorSpec("w", (300, 150), ("w",)))
    container, _ = packed(tmp_path, {"w": ("BF16", bits, bits.shape)}, model, trunk=name, segment=segment)
    panels = trunk_weights(container, "w")
    assert (len(panels) > 1) == (segment != "layer")
    start = 0
    for panel in panels:
        expected = encode(name, values[start : start + panel.rows], panel.format.codebook)
        np.testing.assert_array_equal(panel.data, expected.data)
        assert panel.format.name == name
        start += panel.rows
    assert start == 300


@pytest.mark.usefixtures("few_rounds")
@pytest.mark.parametrize("tile", [1, 150 * 7, 1 << 18])
def test_the_size_of_tiles_and_buffers_and_the_number_of_jobs_change_no_byte(tmp_path, monkeypatch, tile):
    checkpoint = make_checkpoint(tmp_path / "m")
    rules = ((".*down_proj", "mxfp4"), (".*gate_proj", "q8"), (".*up_proj", "vq3"))
    options = {"trunk": "fp8", "tensors": rules, "segment": 16384}
    pack(checkpoint, tmp_path / "one.uring", jobs=1, **options)
    monkeypatch.setattr("uringinfer.packing.conversion._TILE_WEIGHTS", tile)
    monkeypatch.setattr("uringinfer.packing.packer.BUFFER_BYTES", 4096)
    pack(checkpoint, tmp_path / "two.uring", jobs=2, **options)
    assert contents(tmp_path / "two.uring") == contents(tmp_path / "one.uring")


@pytest.mark.usefixtures("few_rounds")
def test_a_seed_gives_the_same_bytes_each_time_and_another_one_other_codebooks(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "m")

    def bytes_of(name, **seed):
        pack(checkpoint, tmp_path / name, tensors=((".*up_proj", "vq3"),), **seed)
        return contents(tmp_path / name)

    usual, seven = bytes_of("a.uring"), bytes_of("b.uring", seed=7)
    assert bytes_of("c.uring", seed=0) == usual
    assert bytes_of("d.uring", seed=7) == seven
    assert seven["codebooks.bin"] != usual["codebooks.bin"]


@pytest.mark.usefixtures("few_rounds")
def test_a_part_that_was_packed_with_another_seed_is_packed_anew(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "m")
    options = {"tensors": ((".*up_proj", "vq3"),), "segment": 16384}
    pack(checkpoint, tmp_path / "part.uring", layers=(0, 0), **options)
    report = pack(checkpoint, tmp_path / "part.uring", seed=7, **options)
    pack(checkpoint, tmp_path / "whole.uring", seed=7, **options)
    assert report.resumed_bytes == 0
    assert contents(tmp_path / "part.uring") == contents(tmp_path / "whole.uring")


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_a_seed_of_more_than_32_bits_is_refused(tmp_path, seed):
    with pytest.raises(UsageError, match=f"{seed} is no seed; give 0 to 4294967295"):
        pack(make_checkpoint(tmp_path / "m"), tmp_path / "m.uring", seed=seed)


def test_norms_are_kept_tables_get_eight_bits_and_matrices_what_was_asked(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "m")
    report = pack(checkpoint, tmp_path / "m.uring", trunk="q4", segment=16384)
    container = Container.open(tmp_path / "m.uring")
    formats = {name: places[0].part.format.name for name, places in container.tensors.items()}
    assert formats["embed_tokens"] == formats["lm_head"] == "q8"
    assert formats["norm"] == formats["layers.0.input_layernorm"] == "bf16"
    assert formats["layers.1.mlp.down_proj"] == formats["layers.0.self_attn.q_proj"] == "q4"
    kept = raw_tensors(checkpoint)["model.norm.weight"]
    assert trunk_weights(container, "norm")[0].data.tobytes() == kept
    assert "embed_tokens and lm_head: q8 instead of q4" in report.notes[0]


def test_the_report_states_frobenius_errors_by_kind_and_the_manifest_and_the_worst_keep_them(tmp_path):
    small, large = RNG.standard_normal((2, 96, 150)).astype(np.float32)
    large[:, ::32] *= 40  # outliers: a coarse grid for their neighbours
    tensors = {f"l{n}": ("F32", w, w.shape) for n, w in enumerate((small, large))}
    model = model_of(*(TensorSpec(f"layers.{n}.up", (96, 150), (f"l{n}",)) for n in range(2)))
    container, report = packed(tmp_path, tensors, model, trunk="q4", segment=8192)
    off = [
        np.linalg.norm(np.vstack([decode(panel) for panel in trunk_weights(container, f"layers.{n}.up")]) - w)
        / np.linalg.norm(w)
        for n, w in enumerate((small, large))
    ]
    (error,) = report.errors
    assert (error.kind, error.origin, error.format, error.tensors) == ("up", "f32", "q4", 2)
    assert error.worst_tensor == f"layers.{np.argmax(off)}.up"
    assert error.mean == pytest.approx(np.mean(off), abs=2e-6)
    assert error.worst == pytest.approx(max(off), abs=2e-6)
    assert abs(off[0] - off[1]) > 0.01
    assert container.manifest.errors == report.errors
    assert json.loads(json.dumps(report.to_dict()))["errors"][0]["worst_tensor"] == error.worst_tensor


def test_a_pack_that_keeps_everything_reports_no_errors_and_its_manifest_has_no_such_key(tmp_path):
    report = pack(make_checkpoint(tmp_path / "m"), tmp_path / "m.uring")
    assert report.errors == ()
    assert '"errors"' not in (tmp_path / "m.uring" / "manifest.json").read_text()


def expert_layer(count, rows, cols, source="e.{expert}.w"):
    return ExpertLayer(3, count, (ExpertPart("gate", (rows, cols), (ExpertSource(source),)),))


def test_experts_are_converted_each_by_itself_and_reported_by_number(tmp_path):
    weights = RNG.standard_normal((4, 48, 96)).astype(np.float32)
    weights[2, :, 0] = 50
    tensors = {f"e.{e}.w": ("F32", weights[e], weights[e].shape) for e in range(4)}
    model = model_of(experts=(expert_layer(4, 48, 96),))
    container, report = packed(tmp_path, tensors, model, experts="q4_g32", trunk="q8")
    bank = container.banks[3]
    assert bank.parts[0].format.name == "q4_g32"
    data = np.fromfile(container.bank_paths(bank)[0], np.uint8).reshape(4, bank.record_bytes)
    for expert in range(4):
        expected = encode("q4_g32", weights[expert]).data
        np.testing.assert_array_equal(data[expert, : expected.size], expected)
    (error,) = report.errors
    assert (error.kind, error.tensors, error.worst_tensor) == ("experts.gate", 4, "layers.3.experts.2.gate")


def test_a_rule_names_the_experts_of_a_layer_as_info_does(tmp_path):
    weights = RNG.standard_normal((2, 48, 96)).astype(np.float32)
    tensors = {f"e.{e}.w": ("F32", weights[e], weights[e].shape) for e in range(2)}
    model = model_of(experts=(expert_layer(2, 48, 96),))
    rules = ((r"layers\.3\.experts\..*\.gate", "q8"),)
    container, _ = packed(tmp_path, tensors, model, tensors=rules)
    assert container.banks[3].parts[0].format.name == "q8"


def test_matrices_stored_as_in_by_out_are_read_once_and_turned(tmp_path, monkeypatch):
    weights = RNG.standard_normal((2, 96, 48)).astype(np.float32)  # [expert, in, out]
    part = ExpertPart("gate", (48, 96), (ExpertSource("e", transposed=True),))
    model = model_of(experts=(ExpertLayer(0, 2, (part,)),))
    reads = []
    real = TransposedRun.read
    monkeypatch.setattr(TransposedRun, "read", lambda run, *rest: reads.append(run) or real(run, *rest))
    monkeypatch.setattr("uringinfer.packing.conversion._TILE_WEIGHTS", 96 * 5)
    container, _ = packed(tmp_path, {"e": ("F32", weights, weights.shape)}, model, experts="q8", jobs=1)
    data = np.fromfile(container.path / "experts-L0.bin", np.uint8).reshape(2, -1)
    expected = encode("q8", np.ascontiguousarray(weights[1].T)).data
    np.testing.assert_array_equal(data[1, : expected.size], expected)
    assert len(reads) == 2


@pytest.mark.parametrize("target", ["q8", "bf16", "fp8_b64"])
def test_a_source_in_blocks_of_rows_is_decoded_from_any_row(tmp_path, target):
    codes = RNG.integers(0, 0x7E, (300, 150), dtype=np.uint8)
    scales = RNG.uniform(0.5, 2, (3, 2)).astype(np.float32)
    tensors = {"w.weight": ("F8_E4M3", codes, codes.shape), "w.scale": ("F32", scales, scales.shape)}
    form = weight_format("fp8")
    values = form.decode(form.join(300, 150, (codes, scales)), 300, 150)
    model = model_of(TensorSpec("w", (300, 150), ("w.weight",)))
    container, report = packed(tmp_path, tensors, model, trunk=target, segment=12288)
    panels = trunk_weights(container, "w")
    assert len(panels) > 2
    expected = encode(target, values) if target != "fp8_b64" else None
    got = np.vstack([decode(panel) for panel in panels])
    if expected is not None:
        np.testing.assert_array_equal(got, decode(expected))
    assert np.linalg.norm(got - values) < 0.03 * np.linalg.norm(values)
    assert report.errors[0].origin == "fp8"


def test_quantising_what_is_quantised_is_announced_with_both_errors(tmp_path):
    codes = RNG.integers(0, 0x7E, (128, 128), dtype=np.uint8)
    scales = np.ones((1, 1), np.float32)
    tensors = {"w.weight": ("F8_E4M3", codes, codes.shape), "w.scale": ("F32", scales, scales.shape)}
    model = model_of(TensorSpec("w", (128, 128), ("w.weight",)))
    _, report = packed(tmp_path, tensors, model, trunk="q4", dry_run=True)
    assert "would be quantised twice: 1 of fp8 (about 2.6% off), as q4" in report.notes
    _, report = packed(tmp_path, tensors, model, trunk="q4")
    (note,) = report.notes
    assert note == f"quantised twice: 1 of fp8 (about 2.6% off), as q4 ({report.errors[0].mean:.1%} off that)"
    _, report = packed(tmp_path, tensors, model, trunk="bf16", force=True)
    assert report.notes == ()


def test_what_has_the_format_already_is_kept_bit_for_bit(tmp_path):
    codes = RNG.integers(0, 0x7E, (128, 128), dtype=np.uint8)
    scales = np.full((1, 1), 0.37, np.float32)
    tensors = {"w.weight": ("F8_E4M3", codes, codes.shape), "w.scale": ("F32", scales, scales.shape)}
    model = model_of(TensorSpec("w", (128, 128), ("w.weight",)))
    container, report = packed(tmp_path, tensors, model, trunk="fp8")
    assert trunk_weights(container, "w")[0].data[: 128 * 128].tobytes() == codes.tobytes()
    assert report.errors == ()


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_infinities_and_nans_are_refused_by_name_unless_kept(tmp_path, bad):
    weights = RNG.standard_normal((64, 64)).astype(np.float32)
    weights[60, 3] = bad
    tensors = {"w": ("F32", weights, weights.shape)}
    model = model_of(TensorSpec("w", (64, 64), ("w",)))
    with pytest.raises(
        IntegrityError, match=r"tensor w holds infinities or NaNs, .*keep it: --tensor 'w=keep'"
    ):
        packed(tmp_path, tensors, model, trunk="q8")
    container, _ = packed(tmp_path, tensors, model, trunk="q8", tensors=(("w", "keep"),))
    assert container.tensors["w"][0].part.format.name == "f32"


def test_what_a_format_cannot_reach_is_refused_by_name(tmp_path):
    weights = np.full((64, 64), 1e6, np.float32)
    model = model_of(TensorSpec("w", (64, 64), ("w",)))
    with pytest.raises(IntegrityError, match=r"tensor w .*beyond what f16 can hold; choose bf16 or f32"):
        packed(tmp_path, {"w": ("F32", weights, weights.shape)}, model, trunk="f16")


def test_expert_biases_cannot_be_named(tmp_path):
    weights = RNG.standard_normal((2, 48)).astype(np.float32)
    part = ExpertPart("gate_bias", (48,), (ExpertSource("b"),))
    model = model_of(experts=(ExpertLayer(0, 2, (part,)),))
    with pytest.raises(UsageError, match=r"experts\.\*\.gate_bias is a bias, which stays f32"):
        packed(tmp_path, {"b": ("F32", weights, weights.shape)}, model, tensors=((".*gate_bias", "bf16"),))


def test_a_dry_run_gives_the_sizes_of_each_format_that_the_pack_will_have(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "m")
    dry = pack(checkpoint, tmp_path / "m.uring", trunk="q4", dry_run=True)
    real = pack(checkpoint, tmp_path / "m.uring", trunk="q4")
    kept = pack(checkpoint, tmp_path / "kept.uring")
    assert (dry.nbytes, dry.formats) == (real.nbytes, real.formats)
    assert set(dry.formats) == {"bf16", "q8", "q4"}
    assert dry.nbytes < 0.5 * kept.nbytes


def test_the_space_that_is_asked_for_is_that_of_the_converted_model(tmp_path, monkeypatch):
    checkpoint = make_checkpoint(tmp_path / "m")
    asked = []
    monkeypatch.setattr("uringinfer.packing.staging.check_space", lambda path, needed: asked.append(needed))
    converted = pack(checkpoint, tmp_path / "a.uring", trunk="q4")
    kept = pack(checkpoint, tmp_path / "b.uring")
    assert asked[1] - asked[0] == kept.nbytes - converted.nbytes > 0


def test_a_matrix_of_any_size_is_converted_in_little_memory(tmp_path, few_rounds):
    bits, _ = bf16(np.tile(RNG.standard_normal((256, 2048)).astype(np.float32), (20, 1)))
    write_tensors(tmp_path / "m", {"w": ("BF16", bits, bits.shape)})
    model = model_of(TensorSpec("w", bits.shape, ("w",)))
    peaks = []
    for name in ("q8", "fp8", "mxfp4", "vq3"):
        tracemalloc.start()
        pack(
            *(tmp_path / "m", tmp_path / f"{name}.uring"),
            make_model=lambda config: model,
            trunk=name,
            segment="layer",
            jobs=1,
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < bits.nbytes  # as float32 it takes twice that


def test_layers_that_are_packed_one_by_one_end_with_the_same_bytes_and_errors(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "m")
    options = {"trunk": "mxfp4", "segment": 16384}
    whole = pack(checkpoint, tmp_path / "whole.uring", **options)
    for layer in (1, 0):
        part = pack(checkpoint, tmp_path / "parts.uring", layers=(layer, layer), **options)
        assert not part.complete
        assert part.errors == ()
    report = pack(checkpoint, tmp_path / "parts.uring", **options)
    assert report.errors == whole.errors
    assert report.resumed_bytes == whole.nbytes
    assert contents(tmp_path / "parts.uring") == contents(tmp_path / "whole.uring")
