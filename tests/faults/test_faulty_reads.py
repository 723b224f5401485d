"""Every family on a drive that fails, delays, shortens, corrupts, misdirects and repeats: the right logits,
or one line that names the read; never others."""

import functools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path += [str(Path(__file__).parents[1] / room) for room in ("models", "packing")]
from checkpoint_maker import write_tensors
from golden_files import load as load_golden

import uringinfer
from tests.faults.faulty_reads import HARMLESS, WRONG, FaultySchedule
from uringinfer.errors import IntegrityError
from uringinfer.packing.packer import pack
from uringinfer.storage import preadv

FAMILIES = (
    *("deepseek_v2", "deepseek_v3", "glm4_moe", "gpt_oss", "granitemoe", "kimi_k2", "kimi_linear", "llama"),
    *("mistral", "mixtral", "olmoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"),
)
OPTIONS = {"io": "preadv", "context": 32, "chunk": 4, "guesses": 0, "all_logits": True}


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Name of a family -> (its container, ids)."""
    directory = tmp_path_factory.mktemp("families")

    @functools.cache
    def make(name):
        golden = load_golden(name)
        tensors = {
            key: ("F32", np.ascontiguousarray(array, np.float32), array.shape)
            for key, array in golden.checkpoint.items()
        }
        write_tensors(directory / name, tensors)
        (directory / name / "config.json").write_text(json.dumps(golden.config))
        pack(directory / name, directory / f"{name}.uring", segment=4096)
        return directory / f"{name}.uring", golden.ids

    return make


def logits(model, ids, monkeypatch, schedule=None):
    """Logits of all positions on a model whose weights mostly stream, as bytes."""
    reader = functools.partial(preadv.PreadvReader, preadv=schedule) if schedule else preadv.PreadvReader
    with monkeypatch.context() as patched:
        patched.setattr(preadv, "PreadvReader", reader)
        with uringinfer.load(model, trunk_budget=1, **OPTIONS) as engine:
            found = engine.session().feed(ids, all_logits=True).tobytes()
            assert engine.trunk.statistics().streamed_bytes > 0
            return found


@pytest.mark.parametrize("name", FAMILIES)
def test_delays_short_reads_and_interruptions_change_no_bit(packed, monkeypatch, name):
    model, ids = packed(name)
    schedule = FaultySchedule(1, HARMLESS, 0.5)
    assert logits(model, ids, monkeypatch, schedule) == logits(model, ids, monkeypatch)
    assert schedule.suffered["again"] > 0 and schedule.suffered["short"] + schedule.suffered["delay"] > 0


@pytest.mark.parametrize("name", FAMILIES)
def test_wrong_bytes_are_read_again_or_refused_and_never_computed_with(packed, monkeypatch, name):
    model, ids = packed(name)
    right = logits(model, ids, monkeypatch)
    outcomes = set()
    for seed, share in enumerate((0.02, 0.1, 0.4)):
        schedule = FaultySchedule(seed, (*WRONG, *HARMLESS), share)
        try:
            assert logits(model, ids, monkeypatch, schedule) == right
            outcomes.add("right")
        except IntegrityError as error:
            assert "\n" not in str(error)
            outcomes.add("refused")
    assert outcomes


@pytest.mark.parametrize("name", ["llama", "qwen3_moe", "kimi_linear"])
def test_a_drive_that_fails_is_named_with_file_and_offset(packed, monkeypatch, name):
    model, ids = packed(name)
    with pytest.raises(IntegrityError, match=r"(trunk|experts-L\d+)\.bin.*offset \d+.*Input/output error"):
        logits(model, ids, monkeypatch, FaultySchedule(1, ("fail",), 1.0))
