"""What the simulated drive does when, worked out by hand."""

import pytest

from uringinfer.planning.drive import Drive
from uringinfer.storage.contract import Priority


def test_reads_of_one_priority_are_served_in_their_order():
    drive = Drive()
    first, second = (drive.submit(0.0, 2.0, Priority.TRUNK) for _ in range(2))

    assert (drive.finish(first), drive.finish(second)) == (2.0, 4.0)


def test_a_drive_works_while_nobody_waits():
    drive = Drive()
    read = drive.submit(1.0, 2.0, Priority.TRUNK)

    drive.run(2.5)
    assert not read.done
    drive.run(3.0)
    assert read.done


def test_only_a_read_that_finds_the_drive_idle_takes_the_latency():
    drive = Drive(latency=0.5)
    first, second = (drive.submit(10.0, 2.0, Priority.DEMAND) for _ in range(2))

    assert (drive.finish(first), drive.finish(second)) == (12.5, 14.5)


@pytest.mark.parametrize(("window", "there"), [(0.0, 3.0), (1.0, 4.0), (100.0, 10.0)])
def test_demand_goes_before_the_trunk_but_not_before_what_is_in_flight(window, there):
    drive = Drive(window=window)
    trunk = drive.submit(0.0, 8.0, Priority.TRUNK)

    demanded = drive.submit(1.0, 2.0, Priority.DEMAND)

    assert drive.finish(demanded) == there
    assert drive.finish(trunk) == 10.0


@pytest.mark.parametrize(("kind", "there"), [(Priority.SPECULATION, 5.0), (Priority.EXPECTED, 7.0)])
def test_of_guesses_only_their_share_is_in_flight(kind, there):
    drive = Drive(window=8.0)
    guess = drive.submit(0.0, 8.0, kind)

    trunk = drive.submit(1.0, 2.0, Priority.TRUNK)

    assert drive.finish(trunk) == there
    assert drive.finish(guess) == 10.0


def test_what_somebody_waits_for_goes_before_the_trunk():
    drive = Drive()
    drive.submit(0.0, 8.0, Priority.TRUNK)
    guess = drive.submit(0.0, 2.0, Priority.SPECULATION)

    assert drive.finish(guess) == 2.0


def test_a_read_that_has_not_begun_is_taken_back():
    drive = Drive(window=8.0)
    guesses = [drive.submit(0.0, 1.0, Priority.SPECULATION) for _ in range(4)]

    for guess in guesses:
        drive.withdraw(0.5, guess)

    # half a second is left of the first, and all of the second and of the third, which are in flight in part
    demanded = drive.submit(0.5, 1.0, Priority.DEMAND)
    assert drive.finish(demanded) == pytest.approx(3.5)
    drive.run(10.0)
    assert [guess.done for guess in guesses] == [True, True, True, False]
