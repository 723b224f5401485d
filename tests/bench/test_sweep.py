"""Every setting runs in a process of its own; what happens there arrives here."""

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from tiny_models import Containers, write_tiny_checkpoint

from uringinfer.bench.sweep import Bench, Refusal, Setting, run_bench, settings_of
from uringinfer.bench.workload import Workload
from uringinfer.errors import EnvironmentError_, UsageError

WORKLOADS = (Workload("pp", 6), Workload("tg", 2))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sweep")
    return Containers(write_tiny_checkpoint(directory / "checkpoint", layers=1), directory)()


def test_settings_are_every_combination():
    assert settings_of([1, 2], ["uring"], [None, 3], [0]) == [
        Setting(1, "uring", None, 0),
        Setting(1, "uring", 3, 0),
        Setting(2, "uring", None, 0),
        Setting(2, "uring", 3, 0),
    ]


def test_a_setting_is_measured_in_a_new_process_with_a_peak_of_its_own(model):
    ballast = bytearray(os.urandom(1 << 20)) * 200  # this process is larger than the limit below
    told = []
    results = list(
        run_bench(
            Bench(model, WORKLOADS, 2, chunk=4),
            [Setting(io="preadv", threads=1)],
            lambda *message: told.append(message),
        )
    )
    assert len(ballast) == 200 << 20
    assert [result.workload.name for _, result in results] == ["pp6", "tg2"]
    for _, result in results:
        assert (result.setup.reader, result.setup.threads, result.setup.chunk) == ("preadv", 1, 4)
        assert len(result.phases) == 2
        assert 10 << 20 < result.peak_rss < 200 << 20
    assert ("tg2", 1, 2) in told


def test_a_budget_below_the_floor_is_a_result_with_the_floor(model):
    ((setting, result),) = run_bench(Bench(model, WORKLOADS, 1), [Setting(budget=1 << 20)])
    assert setting.budget == 1 << 20
    assert isinstance(result, Refusal)
    assert result.error.floor > result.error.budget == 1 << 20
    assert "below this model's floor" in str(result.error) and result.error.hint


def test_other_errors_of_the_process_are_raised_here(model):
    with pytest.raises(UsageError, match="at most 8192"):
        list(run_bench(Bench(model, (Workload("pp", 9000),), 1), [Setting()]))


def die(bench, setting, sending):
    os._exit(7)


def test_a_process_that_dies_is_named_with_its_exit_code(model, monkeypatch):
    monkeypatch.setattr("uringinfer.bench.sweep._run_setting", die)
    with pytest.raises(EnvironmentError_, match="exit code 7"):
        list(run_bench(Bench(model, WORKLOADS, 1), [Setting()]))
