"""Vector-quantised models as a whole: against the decoded weights, and the first law for them."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path += [str(Path(__file__).parents[2] / "scripts"), str(Path(__file__).parents[1] / "packing")]
from checkpoint_maker import write_tensors
from greedy_logits import greedy_logits, load_for_logits
from make_synthetic import write_checkpoint
from synthetic_moe import moe_config, moe_tensors
from tiny_models import write_tiny_checkpoint

from uringinfer.container import Container
from uringinfer.container.binding import bind_codebooks
from uringinfer.container.codebooks import CODEBOOKS_NAME, codebook_memory
from uringinfer.container.row_checksums import row_checksum_bytes
from uringinfer.container.verifier import verify
from uringinfer.engine.compute_clock import clock_compute
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.errors import IntegrityError
from uringinfer.kernels.formats import Weight, decode, weight_format
from uringinfer.packing.packer import pack
from uringinfer.packing.sharder import shard

LAYERS, EXPERTS, PER_TOKEN = 2, 8, 3
PROMPT = [(13 * n) % 300 for n in range(20)]
STEPS = 6
TABLE_TOO = (("embed_tokens", "vq3"),)


def moe_checkpoint(directory):
    """Experts whose rows are no whole number of vectors: 45 columns of `down`."""
    config = moe_config(
        experts=EXPERTS,
        per_token=PER_TOKEN,
        layers=LAYERS,
        hidden=96,
        inner=45,
        heads=4,
        kv_heads=2,
        vocab=300,
    )
    write_checkpoint(directory, config, moe_tensors(config), seed=5)
    return directory


def decoded_tensors(container):
    """Every tensor of the container as float32, under its name in a checkpoint of Qwen3-MoE or Llama."""
    container = bind_codebooks(container)
    trunk = np.fromfile(container.trunk_path, np.uint8)
    tensors = {}
    for name, places in container.tensors.items():
        panels = [
            decode(
                Weight(
                    p.part.format,
                    p.part.rows,
                    p.part.cols,
                    trunk[p.file_offset : p.file_offset + p.part.nbytes],
                )
            )
            for p in places
        ]
        full = "lm_head.weight" if name == "lm_head" else f"model.{name}.weight"
        full = full.replace(".router.", ".mlp.gate.")
        tensors[full] = np.concatenate(panels).reshape(places[0].part.shape)
    for layer, bank in container.banks.items():
        records = np.fromfile(container.bank_paths(bank)[0], np.uint8).reshape(bank.num_experts, -1)
        for expert, record in enumerate(records):
            for part in bank.parts:
                data = record[part.offset : part.offset + part.nbytes]
                full = f"model.layers.{layer}.mlp.experts.{expert}.{part.name}_proj.weight"
                tensors[full] = decode(Weight(part.format, part.rows, part.cols, data))
    return tensors


def decoded_model(container, directory):
    """The container's weights as a float32 model of their own."""
    tensors = decoded_tensors(container)
    write_tensors(directory / "f32", {name: ("F32", w, w.shape) for name, w in tensors.items()})
    (directory / "f32" / "config.json").write_text(json.dumps(dict(container.manifest.config)))
    pack(directory / "f32", directory / "f32.uring")
    return open_model(directory / "f32.uring", native=False)


def logits(opened, **options):
    """Of every position of the prompt, and of greedy steps."""
    with load_for_logits(opened, **options) as engine:
        return greedy_logits(engine, PROMPT, STEPS)


def packed(checkpoint, directory, **options):
    """Packed with codebooks of few rounds: that they fit well is the business of other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uringinfer.kernels.codebooks.ROUNDS", 2)
        patch.setattr("uringinfer.kernels.codebooks.JOINT_ROUNDS", 1)
        pack(checkpoint, directory / "vq.uring", segment=16384, **options)
    return directory / "vq.uring"


@pytest.fixture(scope="module")
def moe(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vq")
    checkpoint = moe_checkpoint(directory / "checkpoint")
    return packed(checkpoint, directory, experts="vq3", trunk="vq3", tensors=TABLE_TOO)


def native_model(path, threads=None):
    opened = open_model(path, threads=threads)
    if opened.kernels.name != "native":
        pytest.skip(f"needs the native kernels: {'; '.join(opened.kernels.notes)}")
    return opened


@pytest.fixture(scope="module")
def reference(moe):
    return logits(native_model(moe)).tobytes()


@pytest.mark.parametrize("native", [None, False])
def test_a_mixture_of_experts_gives_the_logits_of_its_decoded_weights(moe, tmp_path, native):
    expected = logits(decoded_model(Container.open(moe), tmp_path))
    np.testing.assert_allclose(logits(open_model(moe, native=native)), expected, atol=2e-4 * expected.std())


@pytest.mark.parametrize("options", [{"trunk": "vq3"}, {"trunk": "q8", "tensors": ((".*up_proj", "vq3"),)}])
def test_a_dense_model_gives_the_logits_of_its_decoded_weights(tmp_path, options):
    checkpoint = write_tiny_checkpoint(tmp_path / "m", tokenizer=False, hidden=192, intermediate=300)
    path = packed(checkpoint, tmp_path, **options)
    expected = logits(decoded_model(Container.open(path), tmp_path))
    np.testing.assert_allclose(logits(open_model(path)), expected, atol=2e-4 * expected.std())


@pytest.mark.parametrize("io", ["uring", "preadv"])
@pytest.mark.parametrize("slots", [PER_TOKEN, LAYERS * EXPERTS])
@pytest.mark.parametrize("lookahead", [0, 4])
def test_neither_reader_nor_cache_nor_lookahead_show(moe, reference, io, slots, lookahead):
    opened = native_model(moe)
    budget = slots * opened.container.manifest.banks[0].record_bytes
    assert logits(opened, io=io, cache_budget=budget, lookahead=lookahead).tobytes() == reference


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("trunk_budget", [40_000, 1 << 30])
def test_neither_threads_nor_chunk_nor_budget_show(moe, reference, chunk, threads, trunk_budget):
    opened = native_model(moe, threads)
    assert logits(opened, chunk=chunk, trunk_budget=trunk_budget).tobytes() == reference


def test_sharded_banks_have_the_same_codebooks(moe, reference, tmp_path):
    path = shutil.copytree(moe, tmp_path / "vq.uring")
    drives = [tmp_path / "a", tmp_path / "b"]
    for drive in drives:
        drive.mkdir()
    shard(path, drives)
    assert logits(native_model(path)).tobytes() == reference


def test_the_planner_counts_codebooks_and_tables(moe):
    opened = native_model(moe)
    bare = opened.model.scratch_bytes(8, 64) + row_checksum_bytes(opened.container.segments)
    form = weight_format("vq3")
    expert = ((form, 45, 96), (form, 45, 96), (form, 96, 45))
    tables = sum(opened.kernels.product_bytes(*shape, 8) for shape in expert)
    books = codebook_memory(opened.container.manifest)
    assert opened.sizes(64, 8).scratch_bytes - bare == books + tables
    # q, k, v, o, gate, up and down of each layer, and a table; 3 stages of 8 KiB each
    assert books == (LAYERS * 7 + 1) * 3 * 8192


def test_its_products_can_be_clocked(moe):
    opened = native_model(moe)
    assert clock_compute(opened.container, opened.model, opened.kernels, 0.0).trunk > 0


@pytest.mark.parametrize("at", [0, 4096, -1])
def test_a_damaged_codebook_is_found_by_verify_and_refused_when_loading(moe, tmp_path, at):
    path = shutil.copytree(moe, tmp_path / "vq.uring")
    data = bytearray((path / CODEBOOKS_NAME).read_bytes())
    data[at] ^= 1
    (path / CODEBOOKS_NAME).write_bytes(data)
    assert [line.partition(":")[0] for line in verify(path).damaged] == [CODEBOOKS_NAME]
    with pytest.raises(IntegrityError, match=r"codebooks\.bin: checksum mismatch"):
        open_model(path).load(LoadOptions(context=64))
