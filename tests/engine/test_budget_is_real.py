"""The second law: peak resident memory stays within the budget, in a process of its own, and in a cgroup."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cgroup_runs import NoCgroups, Run, run_in_cgroup, uringinfer
from make_synthetic import write_checkpoint
from synthetic_moe import moe_config, moe_tensors
from tiny_models import Containers, write_tiny_checkpoint

from uringinfer.packing.packer import pack

ROOT = Path(__file__).parents[2]
IDS = ",".join(str(number) for number in range(1, 13))
SLACK = 4 << 20
"""Between two processes the interpreter's share differs, by the pages that were in the page cache."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """40 MB of weights in segments of 1 MiB: far more than what is not accounted for."""
    directory = tmp_path_factory.mktemp("budget")
    checkpoint = write_tiny_checkpoint(
        directory / "checkpoint", layers=6, hidden=512, intermediate=1536, heads=8, kv_heads=4, vocab=4000
    )
    return Containers(checkpoint, directory)(1 << 20)


LAUNCHER = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print("maxrss", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""A small process between this one and the command: the kernel's peak of a child begins with its parent's."""


def generate_command(model, budget, *options):
    run = ("--ids", IDS, "-n", 5, "--json", "--ignore-eos", "--budget", budget)
    return uringinfer("generate", model, *run, *options)


def generate(model, budget, *options, cgroup=None):
    """Runs the command; (exit code, stdout, stderr, peak resident bytes as the kernel counted them)."""
    command = [sys.executable, "-c", LAUNCHER, *generate_command(model, budget, *options)]
    if cgroup is not None:
        done = in_cgroup(command, cgroup)
    else:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
        done = Run(done.returncode, done.stdout, done.stderr, 0)
    peak = int(re.search(r"^maxrss (\d+)$", done.err, re.MULTILINE)[1]) * 1024
    return done.code, done.out, done.err, peak


def floor_of(model, *options):
    code, _, err, _ = generate(model, 1 << 20, *options)
    assert code == 5
    return int(re.search(r"floor of .*?\((\d+) bytes\)", err)[1])


@pytest.mark.parametrize(
    ("above_floor", "options"),
    [
        (SLACK, ()),
        (SLACK, ("--chunk", "1")),
        (SLACK, ("-c", "4096")),
        (SLACK, ("--io", "preadv")),
        (20 << 20, ()),
        (60 << 20, ()),
    ],
)
def test_peak_memory_stays_within_the_budget(model, above_floor, options):
    budget = floor_of(model, *options) + above_floor
    code, out, err, peak = generate(model, budget, *options)
    assert code == 0, err
    stats = json.loads(out)["stats"]
    assert peak <= budget
    # the kernel counts resident pages in batches for each CPU
    assert stats["peak_rss_bytes"] == pytest.approx(peak, abs=4 << 20)
    assert len(json.loads(out)["tokens"]) == 5


@pytest.fixture(scope="module")
def moe(tmp_path_factory):
    """55 MB of experts in records of 768 KiB."""
    directory = tmp_path_factory.mktemp("moe-budget")
    sizes = {"layers": 3, "hidden": 256, "inner": 512, "heads": 4, "kv_heads": 2, "vocab": 2000}
    config = moe_config(experts=24, per_token=4, **sizes)
    write_checkpoint(directory / "checkpoint", config, moe_tensors(config))
    pack(directory / "checkpoint", directory / "moe.uring", segment=1 << 20)
    return directory / "moe.uring"


@pytest.mark.parametrize(
    ("above_floor", "options"),
    [(SLACK, ()), (SLACK, ("--chunk", "1")), (20 << 20, ("-c", "2048")), (80 << 20, ())],
)
def test_peak_memory_of_a_mixture_of_experts_stays_within_the_budget(moe, above_floor, options):
    budget = floor_of(moe, *options) + above_floor
    code, out, err, peak = generate(moe, budget, *options)
    assert code == 0, err
    assert peak <= budget
    assert json.loads(out)["stats"]["setup"]["cache_slots"] >= 4


def in_cgroup(command, limit):
    try:
        return run_in_cgroup(command, limit)
    except NoCgroups as error:
        pytest.skip(str(error))


def generate_in_cgroup(model, budget, *options):
    """`generate` in a memory cgroup of exactly its budget, which kills what exceeds it."""
    return generate(model, budget, *options, cgroup=budget)


@pytest.mark.parametrize("above_floor", [SLACK, 30 << 20])
def test_a_run_lives_in_a_cgroup_of_exactly_its_budget(model, above_floor):
    budget = floor_of(model) + above_floor
    code, out, err, peak = generate_in_cgroup(model, budget)
    assert code == 0, err
    assert peak <= budget
    assert len(json.loads(out)["tokens"]) == 5


@pytest.mark.parametrize(
    ("above_floor", "options"), [(SLACK, ()), (SLACK, ("--chunk", "1", "-c", "2048")), (30 << 20, ())]
)
def test_a_mixture_of_experts_lives_in_a_cgroup_of_exactly_its_budget(moe, above_floor, options):
    budget = floor_of(moe, *options) + above_floor
    code, out, err, peak = generate_in_cgroup(moe, budget, *options)
    assert code == 0, err
    assert peak <= budget
    assert len(json.loads(out)["tokens"]) == 5


def test_a_budget_above_what_the_process_may_use_runs_with_that_and_says_so(model):
    limit = floor_of(model) + (30 << 20)
    budget, above = limit, 600 << 20

    run = in_cgroup(generate_command(model, above), limit)

    assert run.code == 0, run.err
    assert f"({above} bytes) was asked for" in run.err
    assert json.loads(run.out)["stats"]["peak_rss_bytes"] <= budget


def test_a_cgroup_below_the_floor_is_refused_with_both_numbers(model):
    limit = floor_of(model) - (20 << 20)

    run = in_cgroup(generate_command(model, 600 << 20), limit)

    assert run.code == 5, run.err
    assert re.search(r"budget of .*\(\d+ bytes\) is below this model's floor of .*\(\d+ bytes\)", run.err)


@pytest.mark.parametrize("attempt", range(3))
def test_the_floor_that_one_process_prints_is_a_budget_that_another_accepts(model, attempt):
    budget = floor_of(model)

    code, _, err, peak = generate(model, budget)

    assert code == 0, err
    assert peak <= budget
