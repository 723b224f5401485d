"""A pack keeps inside the memory that its process may use: fewer jobs, or exit code 5."""

import sys
from pathlib import Path

import pytest
from cgroup_runs import NoCgroups, run_in_cgroup, uringinfer

from uringinfer.errors import BudgetError
from uringinfer.packing.job_memory import jobs_within
from uringinfer.planning.machine import Bound, Machine

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from make_synthetic import llama_config, llama_tensors, write_checkpoint

MIB = 1 << 20


def machine(usable, resident=40 * MIB):
    return Machine(1 << 34, 1 << 34, resident, 0, 0, None, None, (Bound("a limit", usable, usable),))


@pytest.mark.parametrize(("usable", "jobs"), [(58, 1), (67, 1), (68, 2), (98, 5), (1000, 8)])
def test_there_are_as_many_jobs_as_fit_beside_what_is_in_use(usable, jobs):
    assert jobs_within(8, 10 * MIB, machine(usable * MIB)) == jobs


def test_where_not_one_fits_both_numbers_are_told():
    said = rf"\({62 * MIB} bytes\).*\({57 * MIB} bytes; a limit\)"
    with pytest.raises(BudgetError, match=said) as caught:
        jobs_within(8, 10 * MIB, machine(57 * MIB))
    assert (caught.value.floor, caught.value.budget) == (62 * MIB, 57 * MIB)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """100 MB of weights: eight jobs that convert take more memory than they get below."""
    directory = tmp_path_factory.mktemp("pack-memory") / "checkpoint"
    config = llama_config(layers=6, hidden=1024, intermediate=2816, heads=8, kv_heads=4, vocab=4000)
    write_checkpoint(directory, config, llama_tensors(config))
    return directory


def pack_in_cgroup(checkpoint, out, limit):
    command = uringinfer("pack", checkpoint, out, "--trunk", "q4", "--jobs", 8, "--quiet")
    try:
        return run_in_cgroup(command, limit)
    except NoCgroups as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("limit", [100 * 10**6, 130 * 10**6])
def test_a_pack_lives_in_a_small_cgroup(checkpoint, tmp_path, limit):
    run = pack_in_cgroup(checkpoint, tmp_path / "out.uring", limit)

    assert run.code == 0, run.err


def test_a_cgroup_too_small_for_one_job_is_refused(checkpoint, tmp_path):
    run = pack_in_cgroup(checkpoint, tmp_path / "out.uring", 60 * 10**6)

    assert run.code == 5, run.err
    assert "packing needs at least" in run.err
