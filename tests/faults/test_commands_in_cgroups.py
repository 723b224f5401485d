"""Commands in a memory cgroup of exactly what they were given, or of what they say that they need."""

import json
import re
import sys
from pathlib import Path

import pytest
from cgroup_runs import NoCgroups, run_in_cgroup, uringinfer

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from tiny_models import Containers, write_tiny_checkpoint

MB = 10**6


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """40 MB of weights: as much as the memory that the commands below get for them."""
    directory = tmp_path_factory.mktemp("commands")
    checkpoint = write_tiny_checkpoint(
        directory / "checkpoint", layers=6, hidden=512, intermediate=1536, heads=8, kv_heads=4, vocab=4000
    )
    return Containers(checkpoint, directory)(1 << 20)


@pytest.fixture(scope="module")
def long_text(tmp_path_factory):
    """5 MB; at once its ids take 1.3 GB."""
    path = tmp_path_factory.mktemp("text") / "long.txt"
    path.write_text("The quick brown fox jumps over the lazy dog.\n" * 112_000)
    return path


def run(command, limit):
    try:
        return run_in_cgroup(command, limit)
    except NoCgroups as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_perplexity_of_a_long_text_lives_in_its_budget(model, long_text):
    command = uringinfer(
        "perplexity", model, long_text, "-c", 64, "--windows", 2, "--budget", "160M", "--json"
    )

    found = run(command, 160 << 20)

    assert found.code == 0, found.err
    assert json.loads(found.out)["windows"] == 2


@pytest.mark.parametrize("limit", [115 * MB])
def test_a_prompt_of_5_mb_is_refused_and_not_killed(model, long_text, limit):
    found = run(uringinfer("generate", model, "-f", long_text, "--budget", limit), limit)

    assert found.code in (2, 5), found.err
    assert found.err.startswith("uringinfer: ")


@pytest.mark.parametrize("limit", [110 * MB, 150 * MB])
def test_bench_lives_in_its_budget(model, limit):
    command = uringinfer("bench", model, "-p", 0, "-n", 2, "-r", 1, "--budget", limit, "--json", "--quiet")

    found = run(command, limit)

    assert found.code in (0, 5), found.err


@pytest.mark.parametrize("limit", [100 * MB])
def test_plan_measure_lives_in_its_budget_or_says_what_it_needs(model, limit):
    command = uringinfer("plan", model, "-c", 64, "--chunk", 1, "--measure", "--budget", limit, "--json")

    found = run(command, limit)

    assert found.code in (0, 5), found.err
    assert found.code == 0 or re.search(r"\(\d+ bytes\).*\(\d+ bytes", found.err)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [50 * MB, 80 * MB])
def test_a_probe_leaves_out_what_does_not_fit(model, limit):
    found = run(uringinfer("probe", model, "--quick", "--json", "--quiet"), limit)

    assert found.code in (0, 5), found.err
    if found.code == 0:
        assert json.loads(found.out)["conditions"]["arena_bytes"] < limit
