import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.text.tokenizer_files import CORPUS
from uringinfer import api
from uringinfer.cli import perplexity
from uringinfer.errors import Interrupted
from uringinfer.packing.packer import pack

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from tiny_models import write_tiny_checkpoint

JARGON = Path(__file__).parents[1] / "data" / "jargon.txt"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_tiny_checkpoint(tmp_path_factory.mktemp("perplexity") / "checkpoint")


@pytest.fixture(scope="module")
def model(checkpoint):
    pack(checkpoint, checkpoint.parent / "model.uring")
    return checkpoint.parent / "model.uring"


@pytest.fixture(scope="module")
def text(checkpoint):
    path = checkpoint.parent / "text"
    path.write_text("\n".join(CORPUS))
    return path


def test_json_is_what_the_engines_own_logits_give(command_line, model, text):
    report = json.loads(command_line("perplexity", model, text, "-c", 64, "--windows", 2, "--json").stdout)
    opened = api.open_model(model)
    ids = opened.prompter.tokenizer.encode(text.read_text())
    losses = []
    with opened.load(api.LoadOptions(context=64, all_logits=True)) as engine:
        for window in (ids[:64], ids[64:128]):
            logits = engine.session().feed(window, all_logits=True).astype(np.float64)
            probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            losses += [-math.log(probabilities[place - 1, window[place]]) for place in range(33, 64)]
    assert report["perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)
    assert (report["windows"], report["tokens_scored"], report["interrupted"]) == (2, 62, False)
    assert report["comparison"] is None


def test_a_container_against_itself_agrees_everywhere(command_line, model, text):
    result = command_line("perplexity", model, text, "-c", 64, "--against", model, "--windows", 1)
    assert result.code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("perplexity ") and "1 of 1 windows of 64 tokens, 31 tokens scored" in lines[0]
    assert lines[2].startswith("divergence 0.000000 ± 0.000000")
    assert lines[3] == "same top-1 100.00% of the tokens"


def test_another_format_of_the_model_is_compared(command_line, checkpoint, model, text, tmp_path):
    pack(checkpoint, tmp_path / "q8.uring", trunk="q8", segment=1 << 16)
    result = command_line("perplexity", tmp_path / "q8.uring", text, "-c", 64, "--against", model)
    assert result.code == 0, result.stderr
    assert "same top-1" in result.stdout


def fewer_layers(checkpoint):
    write_tiny_checkpoint(checkpoint, layers=1)


def other_rotation(checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"rope_theta": 12345.0}))


def other_tokens(checkpoint):
    document = json.loads((checkpoint / "tokenizer.json").read_text())
    document["model"]["merges"] = []
    (checkpoint / "tokenizer.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (fewer_layers, "is in one of them only"),
        (other_rotation, "their rope_theta is"),
        (other_tokens, "their tokenizers cut the text otherwise"),
    ],
)
def test_another_model_is_refused_before_anything_is_loaded(
    command_line, monkeypatch, model, text, tmp_path, change, difference
):
    change(write_tiny_checkpoint(tmp_path / "other"))
    pack(tmp_path / "other", tmp_path / "other.uring")
    monkeypatch.setattr(api.OpenModel, "load", lambda *rest: pytest.fail("the weights were loaded"))
    result = command_line("perplexity", model, text, "-c", 64, "--against", tmp_path / "other.uring")
    assert result.code == 2
    assert "other.uring are not one model: " in result.stderr and difference in result.stderr


def test_text_may_come_from_stdin_and_budgets_change_nothing(command_line, model, text):
    arguments = ("-c", 64, "--windows", 1, "--json")
    from_file = json.loads(command_line("perplexity", model, text, *arguments).stdout)
    piped = json.loads(
        command_line("perplexity", model, "-", "--budget", "2G", *arguments, stdin=text.read_bytes()).stdout
    )
    assert piped["perplexity"] == from_file["perplexity"]


def test_an_interrupt_shows_what_was_scored_and_exits_with_130(command_line, model, text, monkeypatch):
    measure = perplexity.measure_perplexity

    def one_window(*arguments, **options):
        yield next(measure(*arguments, **options))
        raise Interrupted("stopped as asked")

    monkeypatch.setattr(perplexity, "measure_perplexity", one_window)
    result = command_line("perplexity", model, text, "-c", 64)
    assert result.code == 130
    assert result.stdout.startswith("perplexity ")
    assert result.stderr.endswith("uringinfer: interrupted\n")


def test_a_text_that_is_too_short_is_one_line(command_line, model, tmp_path):
    (tmp_path / "short").write_text("abc")
    result = command_line("perplexity", model, tmp_path / "short")
    assert result.code == 2
    assert "less than one window of 512" in result.stderr.splitlines()[-1]


@pytest.mark.slow
def test_smollm2_predicts_the_jargon_file_as_an_independent_engine_says(command_line, tmp_path):
    """11.548 was computed by another engine with bf16 weights and float32 arithmetic."""
    path = os.environ.get("URINGINFER_SMOLLM2")
    if path is None:
        pytest.skip("needs SmolLM2: set URINGINFER_SMOLLM2, as scripts/test.sh --all does")
    pack(path, tmp_path / "smollm2.uring", trunk="bf16")
    result = command_line("perplexity", tmp_path / "smollm2.uring", JARGON, "--windows", 20, "--json")
    report = json.loads(result.stdout)
    assert report["tokens_scored"] == 20 * 255
    assert report["perplexity"] == pytest.approx(11.548, abs=0.005)
