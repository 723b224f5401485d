from dataclasses import replace

import pytest

from uringinfer.planning.grants import granted, lacking, room
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


def test_room_is_what_is_left_of_the_smaller_bound_beside_a_reserve():
    machine = replace(MACHINE, resident=100 * MIB)

    assert room(machine) == (390 - 100 - 16) * MIB
    assert room(machine, 200 * MIB) == (200 - 100 - 16) * MIB
    assert room(machine, 50 * MIB) == 0


def test_what_lacks_room_tells_what_it_needs_and_what_there_is():
    error = lacking("a probe", 40 * MIB, replace(MACHINE, resident=360 * MIB))

    assert (error.floor, error.budget) == (416 * MIB, 390 * MIB)
    assert f"{416 * MIB} bytes" in str(error) and f"{390 * MIB} bytes; {BOUND.name}" in str(error)
