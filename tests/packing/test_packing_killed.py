"""kill -9 at any moment of a pack, then the same command again: the same bytes."""

import itertools
import json
import os
import random
import signal
import threading

import pytest
from checkpoint_maker import make_checkpoint

from uringinfer.container import Container
from uringinfer.packing.journal import JOURNAL_NAME
from uringinfer.packing.packer import pack
from uringinfer.packing.staging import partial_path

OPTIONS = {"segment": 8192, "jobs": 2}


@pytest.fixture
def checkpoint(tmp_path):
    return make_checkpoint(tmp_path / "m")


@pytest.fixture
def undisturbed(checkpoint, tmp_path):
    pack(checkpoint, tmp_path / "good.uring", **OPTIONS)
    return contents(tmp_path / "good.uring")


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def in_child(work):
    """Runs `work` in a forked process; returns its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def pack_counting_writes(checkpoint, out, at_write):
    """A pack that calls `at_write(number)` before each write to the container or the journal, from 1 on."""
    lock = threading.Lock()
    numbers = itertools.count(1)

    def counted(real):
        def call(*args):
            with lock:
                at_write(next(numbers))
            return real(*args)

        return call

    os.pwrite, os.write = counted(os.pwrite), counted(os.write)
    pack(checkpoint, out, **OPTIONS)


def pack_killed_at(checkpoint, out, fatal):
    """A pack that is killed instead of its `fatal`-th write."""

    def die(number):
        if number == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    pack_counting_writes(checkpoint, out, die)


def count_writes(checkpoint, out):
    """Writes of an undisturbed pack: as many in each run, whatever the order of its threads."""
    count = out.with_name("count")
    pid = in_child(
        lambda: pack_counting_writes(checkpoint, out, lambda number: count.write_text(str(number)))
    )
    assert os.waitpid(pid, 0)[1] == 0
    return int(count.read_text())


def finished_bytes(out, manifest):
    """Bytes of the segments that the journal of the interrupted pack of `out` calls finished."""
    lines = (partial_path(out) / JOURNAL_NAME).read_text().splitlines()
    return sum(manifest.segments[json.loads(line)["block"]].nbytes for line in lines[1:])


def test_killed_at_twenty_random_moments_a_pack_ends_with_the_same_bytes(checkpoint, undisturbed, tmp_path):
    manifest = Container.open(tmp_path / "good.uring").manifest
    writes = count_writes(checkpoint, tmp_path / "counted.uring")
    resumed = []
    # the first write is the journal's key
    for fatal in random.Random(1).sample(range(2, writes + 1), 20):
        out = tmp_path / f"{fatal}.uring"
        _, status = os.waitpid(
            in_child(lambda out=out, fatal=fatal: pack_killed_at(checkpoint, out, fatal)), 0
        )
        assert os.WIFSIGNALED(status)
        expected = finished_bytes(out, manifest)
        report = pack(checkpoint, out, **OPTIONS)
        assert report.resumed_bytes == expected
        assert contents(out) == undisturbed
        resumed.append(expected)
    # two threads: of the first six writes one is the key and at most two have no line in the journal yet
    assert sum(nbytes > 0 for nbytes in resumed) >= 16


def test_killed_at_every_step_of_the_commit_a_pack_gives_a_whole_container_or_none(
    checkpoint, undisturbed, tmp_path
):
    for step in range(1, 100):
        out = tmp_path / f"{step}.uring"
        _, status = os.waitpid(in_child(lambda out=out, step=step: die_at_step(checkpoint, out, step)), 0)
        if out.exists():  # the journal goes last, when the container has its name
            assert {name: data for name, data in contents(out).items() if name != JOURNAL_NAME} == undisturbed
        else:
            pack(checkpoint, out, **OPTIONS)
            assert contents(out) == undisturbed
        if not os.WIFSIGNALED(status):
            break
    assert step > 8


def die_at_step(checkpoint, out, step):
    """Packs, and is killed instead of the step-th of fsync, rename and unlink."""
    count = 0

    def counted(real):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    os.fsync, os.rename, os.unlink = counted(os.fsync), counted(os.rename), counted(os.unlink)
    pack(checkpoint, out, **OPTIONS)
