"""Models in GGUF give the logits of their own weights in float32.

The golden cases, written as the public converter writes them, run always. Files that public tools made, with
the logits of transformers on the weights that the gguf package decodes, are run where they are: in `shared`
beside the repository, or where URINGINFER_SHARED says.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from greedy_logits import greedy_logits, load_for_logits

sys.path.append(str(Path(__file__).parents[1] / "models"))
import gguf_golden
from golden_files import TOLERANCE, load

from uringinfer.container import Container
from uringinfer.engine.opening import open_model
from uringinfer.kernels import open_kernels
from uringinfer.packing.packer import pack

SHARED = Path(os.environ.get("URINGINFER_SHARED", Path(__file__).parents[3] / "shared")) / "data"
FILES = sorted(file.stem for file in (SHARED / "gguf").glob("*.npz"))
ROPE = ("scale_linear", "yarn_attn_factor")
GREEDY = 12

needs_shared = pytest.mark.skipif(not FILES, reason=f"no {SHARED / 'gguf'}")


def logits_of(container, ids, *, steps=0, chunk=32, native=None, threads=1):
    """Logits of the prompt and of so many steps behind it, each with the best token."""
    opened = open_model(container, native=native, threads=threads)
    with load_for_logits(opened, chunk=chunk) as engine:
        return greedy_logits(engine, ids, steps)


def error(logits, expected):
    """The largest deviation, relative to the largest logit."""
    return np.abs(logits - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("name", gguf_golden.ARCHITECTURES)
def test_an_architecture_gives_the_oracles_logits_from_gguf(tmp_path, name):
    golden = load(name)
    pack(gguf_golden.write_golden(tmp_path / "m.gguf", name, golden), tmp_path / "m.uring")
    logits = logits_of(tmp_path / "m.uring", golden.ids)
    assert golden.error(logits) < TOLERANCE


@pytest.fixture(scope="module", params=FILES or ["none"])
def published(request, tmp_path_factory):
    """A packed file and what is right of it."""
    if not FILES:
        pytest.skip(f"no {SHARED / 'gguf'}")
    name = request.param
    container = tmp_path_factory.mktemp("gguf") / "m.uring"
    pack(SHARED / "gguf" / f"{name}.gguf", container)
    with np.load(SHARED / "gguf" / f"{name}.npz") as arrays:
        return name, container, dict(arrays)


def test_a_published_file_gives_the_logits_of_its_own_weights(published):
    name, container, right = published
    count = len(right["ids"])
    logits = logits_of(container, right["ids"], steps=GREEDY - 1)
    assert error(logits[:count], right["logits"]) < (1e-4 if "IQ" in name else 1e-5)
    assert logits[count - 1 :].argmax(axis=1).tolist() == right["greedy"][:GREEDY].tolist()


def test_the_container_of_a_published_file_is_hardly_larger(published):
    name, container, _ = published
    manifest = Container.open(container).manifest
    padding = 4096 * (len(manifest.segments) + sum(bank.num_experts for bank in manifest.banks))
    weights = sum(segment.nbytes for segment in manifest.segments)
    weights += sum(bank.num_experts * bank.record_bytes for bank in manifest.banks)
    assert weights <= 1.01 * (SHARED / "gguf" / f"{name}.gguf").stat().st_size + padding


def test_chunks_and_threads_change_no_bit_of_a_published_files_logits(published):
    if open_kernels().name != "native":
        pytest.skip("needs the native kernels")
    _, container, right = published
    whole = logits_of(container, right["ids"], native=True)
    for chunk, threads in ((1, 2), (7, 1), (32, 2)):
        logits = logits_of(container, right["ids"], native=True, chunk=chunk, threads=threads)
        assert logits.tobytes() == whole.tobytes(), (chunk, threads)


def test_numpy_kernels_agree_on_a_published_file(published):
    name, container, right = published
    logits = logits_of(container, right["ids"], native=False)
    assert error(logits, right["logits"]) < (1e-4 if "IQ" in name else 1e-5)


@needs_shared
def test_parts_pack_to_what_the_whole_file_packs_to(tmp_path):
    name = "qwen3_moe-Q4_K_M"
    pack(SHARED / "gguf" / f"{name}-00002-of-00003.gguf", tmp_path / "parts.uring")
    pack(SHARED / "gguf" / f"{name}.gguf", tmp_path / "whole.uring")
    banks = ["trunk.bin", *(file.name for file in (tmp_path / "whole.uring").glob("experts-*.bin"))]
    for bank in banks:
        parts, whole = (tmp_path / f"{kind}.uring" / bank for kind in ("parts", "whole"))
        assert parts.read_bytes() == whole.read_bytes(), bank


@needs_shared
@pytest.mark.parametrize("name", ROPE)
def test_rotary_settings_of_a_file_are_honoured(tmp_path, name):
    pack(SHARED / "cases" / "gguf_rope" / f"{name}.gguf", tmp_path / "m.uring")
    with np.load(SHARED / "cases" / "gguf_rope" / f"{name}.expected.npz") as right:
        logits = logits_of(tmp_path / "m.uring", right["ids"])
        assert error(logits, right["logits"]) < 1e-5
