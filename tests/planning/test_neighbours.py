"""Engines of other processes, in a /proc of the test's own."""

import os
import subprocess
import sys

import pytest

from uringinfer.planning.machine import Machine
from uringinfer.planning.neighbours import Announcement, Neighbour, find_neighbours

GIB = 1 << 30


@pytest.fixture
def proc(tmp_path):
    """16 GiB of RAM, 12 of them available, and a process of 1 GiB."""
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text(f"MemTotal: {16 << 20} kB\nMemAvailable: {12 << 20} kB\n")
    (tmp_path / "self/status").write_text(f"VmRSS:\t {1 << 20} kB\n")
    return tmp_path


def add_process(proc, pid, *links, resident=0):
    (proc / f"{pid}/fd").mkdir(parents=True)
    (proc / f"{pid}/status").write_text(f"VmRSS:\t {resident >> 10} kB\n")
    for number, link in enumerate(links):
        (proc / f"{pid}/fd/{number}").symlink_to(link)


def engine_link(takes):
    return f"/memfd:uringinfer-takes-{takes} (deleted)"


def test_what_a_neighbour_takes_and_does_not_hold_yet_is_not_usable(proc, tmp_path):
    add_process(proc, 77, "/dev/null", engine_link(8 * GIB), resident=3 * GIB)

    machine = Machine.read(proc, tmp_path / "sys")

    assert machine.neighbours == (Neighbour(77, 8 * GIB, 3 * GIB),)
    assert machine.usable_bytes == (12 + 1 - 5) * GIB
    assert "process 77" in machine.neighbour_notes[0]
    assert "8.00 GiB" in machine.neighbour_notes[0]


def test_a_small_neighbour_is_counted_and_not_spoken_of(proc, tmp_path):
    add_process(proc, 77, engine_link(100 << 20))

    machine = Machine.read(proc, tmp_path / "sys")

    assert machine.usable_bytes == 13 * GIB - (100 << 20)
    assert machine.neighbour_notes == []


@pytest.mark.parametrize("link", ["/memfd:other (deleted)", "/elsewhere/uringinfer-takes-5", "socket:[5]"])
def test_other_files_are_no_engines(proc, link):
    add_process(proc, 77, link)

    assert find_neighbours(proc) == ()


def test_a_cgroup_counts_the_neighbours_that_are_in_it_alone(proc, tmp_path):
    group = tmp_path / "sys/fs/cgroup/mine"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(f"{10 * GIB}")
    (proc / "self/mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (proc / "self/cgroup").write_text("0::/mine\n")
    for pid, path in ((70, "/mine/below"), (71, "/other")):
        add_process(proc, pid, engine_link(2 * GIB))
        (proc / f"{pid}/cgroup").write_text(f"0::{path}\n")
    (group / "below").mkdir()
    (group.parent / "other").mkdir()

    [bound] = Machine.read(proc, tmp_path / "sys").cgroup_bounds

    assert bound.usable == 8 * GIB


def test_another_process_sees_an_announcement_until_it_is_closed():
    find = (
        "from uringinfer.planning.neighbours import *; print([(n.pid, n.takes) for n in find_neighbours()])"
    )

    def seen():
        done = subprocess.run([sys.executable, "-c", find], capture_output=True, text=True, check=True)
        return f"({os.getpid()}, 12345)" in done.stdout

    announcement = Announcement(12345)
    before = seen()
    announcement.close()

    assert (before, seen()) == (True, False)
