"""kill -9 after any amount of progress of a conversion, then the same command: the same bytes and errors."""

import os
import random
import signal

import pytest
from checkpoint_maker import make_checkpoint
from test_packing_killed import contents, in_child

from uringinfer.packing import writer
from uringinfer.packing.packer import pack

RULES = ((".*down_proj", "fp8_b32"), (".*up_proj", "vq3"))
OPTIONS = {"segment": 8192, "jobs": 2, "trunk": "q4", "tensors": RULES}


@pytest.fixture
def checkpoint(tmp_path):
    return make_checkpoint(tmp_path / "m")


def die_at_write(checkpoint, out, number):
    """Packs, and is killed instead of the write of this number."""
    real = os.pwrite
    count = 0

    def counted(fd, data, offset):
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(fd, data, offset)

    writer.os.pwrite = counted
    pack(checkpoint, out, **OPTIONS)


def test_killed_at_a_random_write_a_conversion_resumes_to_the_same_bytes(checkpoint, tmp_path):
    undisturbed = pack(checkpoint, tmp_path / "good.uring", **OPTIONS)
    blocks = undisturbed.segments
    resumed = 0
    for write in random.Random(3).sample(range(2, blocks), 8):
        out = tmp_path / f"{write}.uring"
        _, status = os.waitpid(in_child(lambda out=out, write=write: die_at_write(checkpoint, out, write)), 0)
        assert os.WIFSIGNALED(status)
        report = pack(checkpoint, out, **OPTIONS)
        resumed += report.resumed_bytes > 0
        assert contents(out) == contents(tmp_path / "good.uring")
        assert report.errors == undisturbed.errors
    assert resumed >= 5


def test_what_was_written_in_other_formats_is_not_resumed(checkpoint, tmp_path):
    out = tmp_path / "m.uring"
    os.waitpid(in_child(lambda: die_at_write(checkpoint, out, 20)), 0)
    other = OPTIONS | {"trunk": "q4_g32"}
    report = pack(checkpoint, out, **other)
    assert report.resumed_bytes == 0
    pack(checkpoint, tmp_path / "good.uring", **other)
    assert contents(out) == contents(tmp_path / "good.uring")
