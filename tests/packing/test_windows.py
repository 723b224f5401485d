"""Ranges of any alignment out of a file that wants aligned reads."""

import os
from pathlib import Path

import numpy as np
import pytest

from uringinfer.errors import IntegrityError
from uringinfer.packing.windows import READ_BYTES, WINDOW_BYTES, read_range
from uringinfer.storage.direct import Direct, StorageFile


@pytest.fixture
def content():
    return np.random.default_rng(3).integers(0, 256, 2 * WINDOW_BYTES + 1000, np.uint8)


@pytest.fixture
def reads(monkeypatch):
    """(offset, length) of each read."""
    real, seen = os.preadv, []

    def preadv(fd, buffers, offset):
        seen.append((offset, len(buffers[0])))
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    return seen


@pytest.fixture
def open_aligned(tmp_path, content):
    """Opens the content as a file whose reads must be aligned to so many bytes."""
    path = tmp_path / "content"
    path.write_bytes(content.tobytes())
    fd = os.open(path, os.O_RDONLY)
    yield lambda align: StorageFile(path, fd, len(content), Direct(True, "as if", align, align))
    os.close(fd)


@pytest.mark.parametrize("align", [512, 4096, 65536])
@pytest.mark.parametrize("offset", [0, 1, 4095, 65535, 131073])
def test_a_range_comes_by_one_aligned_read(open_aligned, content, reads, align, offset):
    out = np.zeros(READ_BYTES, np.uint8)
    read_range(open_aligned(align), offset, out)
    assert np.array_equal(out, content[offset : offset + READ_BYTES])
    assert len(reads) == 1
    assert all(start % align == nbytes % align == 0 for start, nbytes in reads)


def test_a_range_longer_than_a_window_comes_by_several(open_aligned, content, reads):
    out = np.zeros(WINDOW_BYTES + 7, np.uint8)
    read_range(open_aligned(4096), 993, out)
    assert np.array_equal(out, content[993 : 1000 + WINDOW_BYTES])
    assert len(reads) == 2


def test_a_range_up_to_the_end_of_the_file_is_whole(open_aligned, content):
    out = np.zeros(1500, np.uint8)
    read_range(open_aligned(4096), len(content) - 1500, out)
    assert np.array_equal(out, content[-1500:])


def test_a_range_beyond_the_end_names_the_file_and_what_is_missing(open_aligned, content):
    with pytest.raises(IntegrityError, match=f"content: ends at {len(content)}, 24 bytes before the end"):
        read_range(open_aligned(4096), len(content) - 1000, np.zeros(1024, np.uint8))


def test_a_failed_read_names_file_offset_and_cause():
    file = StorageFile(Path("weights.bin"), -1, 4096, Direct(True, "as if", 512, 512))
    with pytest.raises(
        IntegrityError, match=r"weights\.bin: reading 512 bytes at offset 512 failed: Bad file"
    ):
        read_range(file, 600, np.zeros(100, np.uint8))
