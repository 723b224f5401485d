"""GGUF matrices that stay packed: every weight has exactly the value that the gguf package gives it."""

import struct

import gguf
import gguf_maker
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize
from gguf_maker import HIDDEN, gguf_name, make_gguf, weights

from uringinfer.container import Container
from uringinfer.kernels.formats import Weight, decode
from uringinfer.packing.packer import pack
from uringinfer.packing.windows import read_range

DOWN = "model.layers.0.mlp.down_proj.weight"
QUERY = "model.layers.1.self_attn.q_proj.weight"
KEPT = {Kind.Q8_0: "q8_0", Kind.Q5_1: "q5_1", Kind.MXFP4: "ggml_mxfp4"}


def packed_values(container, name):
    trunk = np.fromfile(container.trunk_path, np.uint8)
    panels = [
        Weight(p.part.format, p.part.rows, p.part.cols, trunk[p.file_offset : p.file_offset + p.part.nbytes])
        for p in container.tensors[name]
    ]
    return np.vstack([decode(panel) for panel in panels])


@pytest.mark.parametrize("kind", KEPT)
def test_every_weight_of_a_kept_type_has_the_value_that_the_gguf_package_gives_it(tmp_path, kind):
    tensors = weights()
    names = {DOWN: "layers.0.mlp.down_proj", QUERY: "layers.1.self_attn.q_proj"}
    path = make_gguf(tmp_path / "m.gguf", tensors, kinds=dict.fromkeys(names, kind))
    report = pack(path, tmp_path / "m.uring", segment=4096)
    container = Container.open(tmp_path / "m.uring")
    for source, name in names.items():
        assert container.tensors[name][0].part.format.name == KEPT[kind]
        # quantising commutes with permuting rows, so the oracle quantises the model's own rows
        expected = dequantize(quantize(tensors[source], kind), kind)
        np.testing.assert_array_equal(packed_values(container, name), expected)
    assert report.notes[-1] == (f"quantised tensors are kept packed, bit for bit: 2 of {kind.name}")


def poke(path, name, rows):
    """Writes `rows` (bytes) over the start of a tensor's data."""
    place = next(t for t in gguf.GGUFReader(path).tensors if t.name == gguf_name(name))
    with path.open("r+b") as file:
        file.seek(place.data_offset)
        file.write(rows)


@pytest.mark.parametrize("options", [{}, {"segment": 4096}, {"trunk": "f32"}])
def test_every_byte_of_a_kept_matrix_is_read_once(tmp_path, monkeypatch, options):
    path = make_gguf(tmp_path / "m.gguf", weights(), kinds={DOWN: Kind.Q8_0})
    place = next(t for t in gguf.GGUFReader(path).tensors if t.name == gguf_name(DOWN))
    begin, end = int(place.data_offset), int(place.data_offset + place.n_bytes)
    reads = []

    def record(file, offset, out):
        reads.append(range(max(begin, offset), min(end, offset + len(out))))
        read_range(file, offset, out)

    monkeypatch.setattr("uringinfer.packing.gguf.read_range", record)
    pack(path, tmp_path / "m.uring", **options)
    assert sorted(byte for read in reads for byte in read) == list(range(begin, end))


def test_codes_and_scales_that_no_quantiser_would_write_keep_their_bits(tmp_path):
    path = make_gguf(tmp_path / "m.gguf", weights(), kinds={DOWN: Kind.Q8_0})
    codes = np.arange(-128, -96, dtype=np.int8)
    poke(path, DOWN, struct.pack("<e", -0.75) + codes.tobytes())
    pack(path, tmp_path / "m.uring")
    values = packed_values(Container.open(tmp_path / "m.uring"), "layers.0.mlp.down_proj")
    np.testing.assert_array_equal(values[0, :32], codes * np.float32(-0.75))


def k_quant_rows(kind, rows, cols, seed):
    """Random rows of a type that the gguf package cannot write, with scales that are finite and small."""
    block, block_bytes = gguf.constants.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (rows * cols // block, block_bytes), dtype=np.uint8)
    scale = rng.uniform(0.001, 0.01, (len(data), 1)).astype(np.float16).view(np.uint8)
    if kind == Kind.Q6_K:
        data[:, -2:] = scale
    else:
        data[:, 0:2] = data[:, 2:4] = scale
    return data.reshape(rows, -1)


@pytest.mark.parametrize(("kind", "lost"), [(Kind.Q4_K, "7.8%"), (Kind.Q5_K, "3.8%"), (Kind.Q6_K, "1.9%")])
def test_k_quants_are_kept_and_converted_as_asked(tmp_path, monkeypatch, kind, lost):
    monkeypatch.setattr(gguf_maker, "INNER", 256)
    rows = k_quant_rows(kind, HIDDEN, 256, 3)
    monkeypatch.setattr(gguf_maker, "quantize", lambda w, k: rows if k == kind else quantize(w, k))
    path = make_gguf(tmp_path / "m.gguf", weights(), kinds={DOWN: kind})
    values = dequantize(rows, kind)
    report = pack(path, tmp_path / "kept.uring")
    assert f"quantised tensors are kept packed, bit for bit: 1 of {kind.name}" in report.notes
    got = packed_values(Container.open(tmp_path / "kept.uring"), "layers.0.mlp.down_proj")
    np.testing.assert_array_equal(got, values)
    report = pack(path, tmp_path / "q8.uring", tensors=[("layers.0.mlp.down_proj", "q8")])
    got = packed_values(Container.open(tmp_path / "q8.uring"), "layers.0.mlp.down_proj")
    assert np.linalg.norm(got - values) < 0.01 * np.linalg.norm(values)
    (error,) = report.errors
    assert (error.origin, error.format) == (kind.name.lower(), "q8")
    assert any(f"quantised twice: 1 of {kind.name.lower()} (about {lost} off)" in n for n in report.notes)


def test_a_packed_tensor_is_converted_from_its_own_values(tmp_path):
    tensors = weights()
    path = make_gguf(tmp_path / "m.gguf", tensors, kinds={QUERY: Kind.Q8_0, "lm_head.weight": Kind.Q8_0})
    report = pack(path, tmp_path / "m.uring", trunk="q4")
    container = Container.open(tmp_path / "m.uring")
    values = dequantize(quantize(tensors[QUERY], Kind.Q8_0), Kind.Q8_0)
    got = packed_values(container, "layers.1.self_attn.q_proj")
    assert got.shape == (HIDDEN, HIDDEN)
    assert 0.05 < np.linalg.norm(got - values) / np.linalg.norm(values) < 0.14
    assert {e.origin for e in report.errors if e.kind == "self_attn.q_proj"} == {"q8_0", "f32"}
    head = "lm_head: q8_0 instead of q4, quantised already; --tensor 'lm_head=q4' insists"
    assert head in report.notes
    # a head that is quantised already is not quantised again for its own sake
    assert container.tensors["lm_head"][0].part.format.name == "q8_0"


@pytest.mark.parametrize("dry_run", [True, False])
def test_notes_tell_what_becomes_of_quantised_tensors_and_not_what_they_are(tmp_path, dry_run):
    kinds = {QUERY: Kind.Q8_0, DOWN: Kind.Q4_1, "lm_head.weight": Kind.Q8_0}
    path = make_gguf(tmp_path / "m.gguf", weights(), kinds=kinds)

    def notes(**options):
        report = pack(path, tmp_path / "m.uring", dry_run=dry_run, force=True, **options)
        return [note.split(" (")[0] for note in report.notes if "quantised" in note]

    kept, decoded = "quantised tensors are kept packed, bit for bit:", "quantised tensors are decoded to"
    twice = "would be quantised twice:" if dry_run else "quantised twice:"
    assert notes() == [f"{kept} 2 of Q8_0, 1 of Q4_1"]
    stays = "lm_head: q8_0 instead of q8, quantised already; --tensor 'lm_head=q8' insists"
    both = {f"{twice} 1 of q8_0", f"{twice} 1 of q4_1"}
    first, second, *others = notes(trunk="q8")
    assert [first, second] == [f"{kept} 1 of Q8_0", stays]
    assert set(others) == both
    assert notes(tensors=[("lm_head", "q8")])[0] == f"{kept} 1 of Q4_1, 1 of Q8_0"
    # floats are no second quantisation, so they are for every tensor that asks for them
    assert notes(trunk="f32") == [f"{decoded} f32: 2 of Q8_0, 1 of Q4_1"]
