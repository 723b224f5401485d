"""Kimi K3 as a whole: packed with its MXFP4 experts, streamed, cached, saved; and the first law for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "models"))
import kimi_k3_oracle as oracle
from greedy_logits import greedy_logits, load_for_logits
from kimi_k3_cases import CASES, GREEDY, make, prompt

from uringinfer.container import Container
from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.errors import Interrupted, UsageError
from uringinfer.packing.packer import pack

PROMPT = np.resize(prompt("mxfp4"), 40).tolist()
STEPS = 8
CONTEXT = 64
PER_TOKEN = CASES["mxfp4"][0]["num_experts_per_token"]
EXPERTS = 8 * CASES["mxfp4"][0]["num_experts"]


class Packed:
    """One tiny checkpoint and its container."""

    def __init__(self, name, directory):
        self.checkpoint, self.path = directory / "checkpoint", directory / "k3.uring"
        make(name, self.checkpoint)
        pack(self.checkpoint, self.path, segment=32768)
        self.container = Container.open(self.path)
        self.record_bytes = self.container.manifest.banks[0].record_bytes


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return {name: Packed(name, tmp_path_factory.mktemp(name)) for name in ("mxfp4", "bf16")}


def logits_of(opened, **options):
    """Logits of every position of the prompt and of greedy steps, as bytes."""
    with load_for_logits(opened, **options) as engine:
        return greedy_logits(engine, PROMPT, STEPS).tobytes()


@pytest.fixture(scope="module")
def native(packed):
    opened = open_model(packed["mxfp4"].path)
    if opened.kernels.name != "native":
        pytest.skip(f"needs the native kernels: {'; '.join(opened.kernels.notes)}")
    return opened


@pytest.fixture(scope="module")
def reference(native):
    return logits_of(native, chunk=16, lookahead=0, io="preadv")


@pytest.mark.parametrize("name", ["mxfp4", "bf16"])
@pytest.mark.parametrize("native", [None, False])
def test_a_packed_checkpoint_gives_the_logits_and_tokens_of_float64(packed, name, native):
    checkpoint = oracle.Checkpoint(packed[name].checkpoint)
    ids = prompt(name).tolist()
    with open_model(packed[name].path, native=native).load(LoadOptions(context=CONTEXT)) as engine:
        options = GenerationOptions(max_tokens=GREEDY, ignore_eos=True)
        tokens = engine.generate(ids, options).tokens
        session = engine.session()
        rows = np.stack([session.step(token) for token in [*ids, *tokens[:-1]]])
    expected = oracle.forward(checkpoint, [*ids, *tokens[:-1]])
    assert np.abs(rows - expected).max() < 1e-5 * np.abs(expected).max()
    assert tokens == expected[len(ids) - 1 :].argmax(axis=1).tolist()


def test_an_experts_record_is_the_run_of_bytes_that_the_checkpoint_has(packed):
    bank = packed["mxfp4"].container.manifest.banks[2]
    shard = packed["mxfp4"].checkpoint / f"model-{bank.layer + 1:05d}-of-00010.safetensors"
    nbytes = sum(part.nbytes for part in bank.parts)
    with (packed["mxfp4"].path / bank.file).open("rb") as file:
        file.seek(5 * bank.record_bytes)
        record = file.read(nbytes)
    assert [part.format.name for part in bank.parts] == ["mxfp4"] * 3
    assert record in shard.read_bytes()


@pytest.mark.parametrize("chunk", [1, 7, 40])
@pytest.mark.parametrize("threads", [1, 2])
def test_chunks_and_threads_change_no_bit(packed, reference, chunk, threads):
    opened = open_model(packed["mxfp4"].path, native=True, threads=threads)
    assert logits_of(opened, chunk=chunk) == reference


@pytest.mark.parametrize("io", ["uring", "preadv"])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("slots", [PER_TOKEN, 4 * PER_TOKEN, EXPERTS])
def test_budgets_readers_and_caches_change_no_bit(packed, native, reference, io, share, slots):
    sizes = [segment.nbytes for segment in packed["mxfp4"].container.streamed_segments]
    trunk = 2 * max(sizes) + round(share * sum(sizes))
    cache = slots * packed["mxfp4"].record_bytes
    assert logits_of(native, io=io, trunk_budget=trunk, cache_budget=cache) == reference


@pytest.mark.parametrize("lookahead", [0, 4])
@pytest.mark.parametrize("policy", ["lru", "lfru"])
@pytest.mark.parametrize("placement", ["prefix", "spread"])
def test_policies_guesses_and_placements_change_no_bit(
    packed, native, reference, lookahead, policy, placement
):
    cache = 3 * PER_TOKEN * packed["mxfp4"].record_bytes
    options = {"lookahead": lookahead, "cache_policy": policy, "placement": placement}
    assert logits_of(native, trunk_budget=200_000, cache_budget=cache, **options) == reference


def test_a_saved_conversation_goes_on_bit_for_bit(native, tmp_path):
    with native.load(LoadOptions(context=CONTEXT)) as engine:
        whole = engine.session()
        whole.feed(PROMPT)
        whole.save(tmp_path / "s")
        restored = engine.load_session(tmp_path / "s", context=50)
        for token in (5, 6, 7):
            np.testing.assert_array_equal(restored.step(token), whole.step(token))


def test_a_pass_that_was_interrupted_cannot_be_taken_back_from_a_recurrent_state(packed):
    with open_model(packed["bf16"].path).load(LoadOptions(context=CONTEXT)) as engine:
        session = engine.session()
        session.feed(PROMPT[:4])
        engine.interrupt()
        with pytest.raises(Interrupted):
            session.feed(PROMPT[4:6])
        engine.trunk.resume()
        with pytest.raises(UsageError, match="interrupted inside a pass"):
            session.feed(PROMPT[4:6])
        with pytest.raises(UsageError, match="interrupted inside a pass"):
            session.save("never")
        assert engine.session().feed(PROMPT[:1]).shape[0] == 1


def test_an_interrupt_behind_the_pass_leaves_a_recurrent_state_whole(packed, monkeypatch):
    with open_model(packed["bf16"].path).load(LoadOptions(context=CONTEXT, chunk=4)) as engine:
        undisturbed, session, norm = engine.session(), engine.session(), engine.kernels.rms_norm
        undisturbed.feed(PROMPT[:8])

        def interrupt_and_norm(*arguments):
            engine.interrupt(after_pass=True)
            return norm(*arguments)

        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(engine.kernels, "rms_norm", interrupt_and_norm)
            session.feed(PROMPT[:8])
        assert (session.is_whole, session.length) == (True, 4)
        engine.trunk.resume()
        assert session.feed(PROMPT[4:8])[-1].tobytes() == undisturbed.last_logits.tobytes()


INTERRUPTED = """
import os, signal
from uringinfer.cli.main import main
from uringinfer.models.kimi_k3 import BlockLayer

forward, calls = BlockLayer.forward, 0

def interrupt_and_forward(self, *arguments):
    global calls
    calls += 1
    if calls == 40:
        os.kill(os.getpid(), signal.SIGINT)
    forward(self, *arguments)

BlockLayer.forward = interrupt_and_forward
main()
"""
"""The command line, that hears Ctrl-C in a layer of the fifth pass."""


def test_the_command_line_saves_a_recurrent_conversation_behind_the_pass_that_ctrl_c_meets(packed, tmp_path):
    def run(*command):
        root = Path(__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, *map(str, command), "--json", "--ignore-eos", "--temp", "0"],
            capture_output=True,
            text=True,
            env=environment,
        )
        return done.returncode, json.loads(done.stdout)["tokens"]

    model, path = packed["bf16"].path, tmp_path / "s"
    generate = ("-m", "uringinfer", "generate", model)
    code, first = run(
        "-c", INTERRUPTED, "generate", model, "--ids", "1,2,3", "-n", 20, "--save-session", path
    )
    assert code == 130
    assert 0 < len(first) < 20
    _, rest = run(*generate, "-n", 4, "--load-session", path)
    assert first + rest == run(*generate, "--ids", "1,2,3", "-n", len(first) + 4)[1]
