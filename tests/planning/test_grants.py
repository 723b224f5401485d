import pytest

from uringinfer.planning.grants import granted
from uringinfer.planning.machine import Bound, Machine

MIB = 1 << 20
BOUND = Bound("cgroup v1 /job (memory.limit_in_bytes)", 400 * MIB, 390 * MIB)
MACHINE = Machine(1 << 34, 1 << 34, 0, 0, 0, None, None, (BOUND,))


@pytest.mark.parametrize("budget", [None, 1, 390 * MIB])
def test_what_this_process_may_use_is_granted_without_a_word(budget):
    assert granted(budget, MACHINE) == (budget, [])


def test_more_than_that_becomes_that_with_both_numbers_and_the_bound():
    budget, [note] = granted(600 * MIB, MACHINE)

    assert budget == 390 * MIB
    assert f"({600 * MIB} bytes)" in note
    assert f"{390 * MIB} bytes" in note
    assert BOUND.name in note


def test_a_limit_that_was_rounded_to_pages_is_not_spoken_of():
    assert granted(390 * MIB + 4095, MACHINE) == (390 * MIB, [])
