import pytest

from uringinfer.bench.workload import Workload, workloads_of
from uringinfer.errors import UsageError


def test_names_are_those_of_llama_bench():
    names = [workload.name for workload in workloads_of(512, 128, 0) + workloads_of(0, 32, 1024)]
    assert names == ["pp512", "tg128", "tg32 @ d1024"]


def test_tokens_are_the_same_every_time_and_from_all_over_the_vocabulary():
    ids = Workload("pp", 2000, depth=48).ids(500)
    assert ids == Workload("pp", 2000, depth=48).ids(500)
    assert len(ids) == 2048
    assert min(ids) >= 0 and max(ids) < 500 and len(set(ids)) > 400


@pytest.mark.parametrize("numbers", [(0, 0, 0), (-1, 1, 0), (4, 4, -1)])
def test_a_workload_of_nothing_is_refused(numbers):
    with pytest.raises(UsageError):
        workloads_of(*numbers)
