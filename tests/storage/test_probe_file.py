from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.storage import probe_file
from uringinfer.storage.filesystem import cached_pages
from uringinfer.storage.probe_file import random_chunks, random_file


def contents(fd: int, nbytes: int) -> bytes:
    """All bytes of a file that may have been opened with O_DIRECT, through the page cache."""
    with Path(f"/proc/self/fd/{fd}").open("rb") as file:
        return file.read(nbytes + 1)


@pytest.mark.parametrize("nbytes", [4096, 1 << 20, (1 << 20) + 1])
def test_the_file_has_the_size_that_was_asked_for_and_no_name(tmp_path: Path, nbytes: int) -> None:
    with random_file(tmp_path, nbytes) as file:
        assert file.nbytes == nbytes
        assert len(contents(file.fd, nbytes)) == nbytes
        assert list(tmp_path.iterdir()) == []


def test_no_two_blocks_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_file, "CHUNK", 2 << 20)
    with random_file(tmp_path, 8 << 20) as file:
        data = contents(file.fd, file.nbytes)
    blocks = {data[start : start + 512] for start in range(0, len(data), 512)}
    assert len(blocks) == len(data) // 512


def test_the_bytes_cannot_be_compressed(tmp_path: Path) -> None:
    with random_file(tmp_path, 1 << 20) as file:
        counts = np.bincount(np.frombuffer(contents(file.fd, file.nbytes), np.uint8), minlength=256)
    assert counts.min() > 3500  # 4096 expected, deviation 64
    assert counts.max() < 4700


def test_two_files_differ(tmp_path: Path) -> None:
    with random_file(tmp_path, 4096) as first, random_file(tmp_path, 4096) as second:
        assert contents(first.fd, 4096) != contents(second.fd, 4096)


def test_none_of_it_is_left_in_the_page_cache(tmp_path: Path) -> None:
    with random_file(tmp_path, 8 << 20) as file:
        if not file.direct.is_direct:
            pytest.skip(f"no direct I/O here: {file.direct.reason}")
        assert cached_pages(file.fd, 0, file.nbytes) == 0


def test_progress_ends_with_all_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_file, "CHUNK", 2 << 20)
    seen: list[tuple[int, int]] = []
    with random_file(tmp_path, 5 << 20, progress=lambda done, total: seen.append((done, total))):
        assert seen == [(2 << 20, 5 << 20), (4 << 20, 5 << 20), (5 << 20, 5 << 20)]


def test_a_file_system_without_unlinked_files_gets_a_name_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def refuse(path: str, flags: int, *rest: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    with random_file(tmp_path, 4096) as file:
        assert file.nbytes == 4096
        assert list(tmp_path.iterdir()) == []


def test_missing_space_is_told_before_a_byte_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = SimpleNamespace(f_bavail=1000, f_frsize=1 << 20)
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    with pytest.raises(EnvironmentError_, match=r"1000\.00 MiB are free, a test file of 2\.00 GiB"):
        random_file(tmp_path, 2 << 30)


def test_space_that_runs_out_while_writing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: object, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(EnvironmentError_, match=r"the space for a test file of 1\.00 MiB ran out"):
        random_file(tmp_path, 1 << 20)


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: no such directory"):
        random_file(tmp_path / "nowhere", 4096)


def test_a_directory_that_may_not_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", forbid)
    with pytest.raises(EnvironmentError_, match="cannot write a test file: Permission denied"):
        random_file(tmp_path, 4096)


def test_chunks_end_with_the_rest() -> None:
    sizes = [chunk.size for chunk in random_chunks(10_000, np.zeros(4096, np.uint8))]
    assert sizes == [4096, 4096, 1808]
