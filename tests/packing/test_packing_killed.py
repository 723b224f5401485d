"""kill -9 at any moment of a pack, then the same command again: the same bytes."""

import os
import random
import signal
import time

import pytest
from checkpoint_maker import make_checkpoint

from uringinfer.packing import writer
from uringinfer.packing.packer import pack

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


def slow_pack(checkpoint, out):
    """A pack whose writes take two milliseconds each, so that there is time to be killed."""
    real = os.pwrite

    def slow(fd, data, offset):
        time.sleep(0.002)
        return real(fd, data, offset)

    writer.os.pwrite = slow
    pack(checkpoint, out, **OPTIONS)


def test_killed_at_twenty_random_moments_a_pack_ends_with_the_same_bytes(checkpoint, undisturbed, tmp_path):
    start = time.monotonic()
    os.waitpid(in_child(lambda: slow_pack(checkpoint, tmp_path / "timing.uring")), 0)
    whole = time.monotonic() - start
    moments = random.Random(1)
    resumed = killed = 0
    for number in range(20):
        out = tmp_path / f"{number}.uring"
        pid = in_child(lambda out=out: slow_pack(checkpoint, out))
        time.sleep(moments.uniform(0, whole))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        killed += os.WIFSIGNALED(status)
        if not out.exists():
            resumed += pack(checkpoint, out, **OPTIONS).resumed_bytes > 0
        assert contents(out) == undisturbed
    assert killed >= 10
    assert resumed >= 5


def test_killed_at_every_step_of_the_commit_a_pack_gives_a_whole_container_or_none(
    checkpoint, undisturbed, tmp_path
):
    for step in range(1, 100):
        out = tmp_path / f"{step}.uring"
        _, status = os.waitpid(in_child(lambda out=out, step=step: die_at_step(checkpoint, out, step)), 0)
        if out.exists():
            assert contents(out) == undisturbed
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
