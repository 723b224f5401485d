from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.storage import direct as direct_module
from uringinfer.storage.direct import Evidence, gather, judge, open_file
from uringinfer.storage.filesystem import Alignment, direct_alignment, filesystem_name

GOOD = Evidence(
    filesystem="ext4",
    alignment=Alignment(512, 512),
    aligned_errno=0,
    misaligned_worked=False,
    filled_cache=False,
)


@pytest.fixture
def tmpfs_file() -> Iterator[Path]:
    path = Path(f"/dev/shm/uringinfer-test-{os.getpid()}")
    try:
        path.write_bytes(bytes(1 << 16))
    except OSError as error:
        pytest.skip(f"/dev/shm cannot be written: {error}")
    yield path
    path.unlink()


def test_a_file_system_that_bypasses_is_direct_with_the_alignments_of_statx() -> None:
    found = judge(replace(GOOD, alignment=Alignment(4, 512)))
    assert (found.is_direct, found.mem_align, found.offset_align) == (True, 4, 512)
    assert found.reason == "ext4, the page cache stayed empty"


def test_without_statx_the_alignment_that_was_tried_is_asked_for() -> None:
    found = judge(replace(GOOD, alignment=None))
    assert (found.is_direct, found.mem_align, found.offset_align) == (True, 4096, 4096)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"filesystem": "tmpfs"}, "tmpfs keeps its files in memory"),
        ({"filesystem": "ecryptfs"}, "ecryptfs accepts O_DIRECT and may cache"),
        ({"filesystem": "zfs"}, "zfs accepts O_DIRECT and may cache"),
        ({"filesystem": "overlay", "alignment": None}, "overlay hides the file system below"),
        ({"alignment": Alignment(0, 0)}, "ext4 does not support it for this file"),
        (
            {"alignment": Alignment(512, 65536)},
            "offsets aligned to 65536 bytes, data here is aligned to 4096",
        ),
        ({"alignment": Alignment(8192, 512)}, "memory aligned to 8192"),
        ({"aligned_errno": errno.EINVAL}, "failed a read of 4096 aligned bytes: Invalid argument"),
        ({"filled_cache": True}, "are in the page cache"),
        ({"filled_cache": None, "misaligned_worked": True}, "takes misaligned reads"),
        ({"filled_cache": None, "misaligned_worked": None, "alignment": None}, "nothing proves"),
    ],
)
def test_what_is_not_proven_is_not_direct(changes: dict[str, object], reason: str) -> None:
    found = judge(replace(GOOD, **changes))  # type: ignore[arg-type]
    assert not found.is_direct
    assert reason in found.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"misaligned_worked": True},  # btrfs serves only those through the page cache, which stayed empty
        {"filled_cache": None},
        {"filesystem": "overlay"},
        {"filled_cache": None, "misaligned_worked": None},
    ],
)
def test_one_silent_witness_does_not_spoil_the_proof(changes: dict[str, object]) -> None:
    assert judge(replace(GOOD, **changes)).is_direct  # type: ignore[arg-type]


def test_a_file_system_that_ignores_o_direct_is_found_out(content_path: Path) -> None:
    # opened without O_DIRECT: this is how a descriptor behaves whose file system accepts the flag and caches
    fd = os.open(content_path, os.O_RDONLY)
    os.fsync(fd)  # only clean pages can be evicted
    evidence = gather(fd, os.fstat(fd).st_size)
    os.close(fd)
    assert evidence.misaligned_worked
    assert not judge(replace(evidence, filesystem="ext4")).is_direct


def test_tmpfs_is_not_direct_and_is_read_all_the_same(tmpfs_file: Path) -> None:
    with open_file(tmpfs_file) as file:
        assert not file.direct.is_direct
        assert "memory" in file.direct.reason
        assert os.pread(file.fd, 10, 3) == bytes(10)


def test_direct_reads_that_are_required_of_tmpfs_are_an_error_with_reason_and_remedy(
    tmpfs_file: Path,
) -> None:
    with pytest.raises(EnvironmentError_, match=r"no direct I/O: tmpfs keeps its files in memory.*; move it"):
        open_file(tmpfs_file, direct="require")


def test_no_descriptor_is_left_open_by_an_error(tmpfs_file: Path) -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(EnvironmentError_):
        open_file(tmpfs_file, direct="require")
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_file_system_that_refuses_the_flag_is_read_through_the_page_cache(
    content_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def refuse(path: Path, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    with open_file(content_path) as file:
        assert not file.direct.is_direct
        assert "refuses to open with O_DIRECT" in file.direct.reason


def test_the_flag_is_taken_off_where_the_bypass_is_not_proven(
    content_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_module, "direct_alignment", lambda fd: Alignment(512, 1 << 20))
    with open_file(content_path) as file:
        assert "1048576" in file.direct.reason
        assert not fcntl.fcntl(file.fd, fcntl.F_GETFL) & os.O_DIRECT
        assert len(os.pread(file.fd, 1000, 1)) == 1000  # nothing about this read is aligned


def test_a_cache_that_grows_by_direct_reads_gives_the_file_system_away(
    content_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # absent, present, absent, present ...: every read leaves its page behind
    answers = iter([0, 1] * 10)
    monkeypatch.setattr(direct_module, "cached_pages", lambda fd, offset, nbytes: next(answers))
    with open_file(content_path) as file:
        if "refuses" in file.direct.reason or "memory" in file.direct.reason:
            pytest.skip(f"no O_DIRECT here: {file.direct.reason}")
        assert "are in the page cache" in file.direct.reason


def test_a_page_that_somebody_else_read_meanwhile_is_no_proof(
    content_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([0, 1, 0, 0])
    monkeypatch.setattr(direct_module, "cached_pages", lambda fd, offset, nbytes: next(answers))
    with open_file(content_path) as file:
        if "refuses" in file.direct.reason or "memory" in file.direct.reason:
            pytest.skip(f"no O_DIRECT here: {file.direct.reason}")
        assert file.direct.is_direct


def test_the_page_cache_can_be_asked_for(content_path: Path) -> None:
    with open_file(content_path, direct="never") as file:
        assert file.direct.reason == "the page cache was asked for"
        assert not file.direct.is_direct


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 4097])
def test_the_size_is_the_files_true_size(tmp_path: Path, nbytes: int) -> None:
    path = tmp_path / "odd"
    path.write_bytes(bytes(nbytes))
    with open_file(path) as file:
        assert file.nbytes == nbytes


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.bin: no such file"):
        open_file(tmp_path / "nothing.bin")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a regular file"):
        open_file(tmp_path)


def test_a_pipe_is_refused_without_waiting_for_its_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        open_file(tmp_path / "pipe")


def test_a_file_that_may_not_be_read_is_an_error_of_the_environment(
    content_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", forbid)
    with pytest.raises(EnvironmentError_, match=r"content\.bin: Permission denied; make it readable"):
        open_file(content_path)


def test_closing_twice_is_harmless(content_path: Path) -> None:
    file = open_file(content_path)
    file.close()
    file.close()
    assert file.fd == -1


def test_two_opens_of_one_path_are_different_files(content_path: Path) -> None:
    with open_file(content_path) as first, open_file(content_path) as second:
        assert first != second
        assert len({first, second}) == 2


def test_the_file_system_is_named(tmpfs_file: Path) -> None:
    fd = os.open(tmpfs_file, os.O_RDONLY)
    assert filesystem_name(fd) == "tmpfs"
    os.close(fd)


def test_a_block_device_is_not_taken_for_the_file_system_that_holds_its_name(
    tmpfs_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = os.open(tmpfs_file, os.O_RDONLY)
    node = os.stat_result((stat.S_IFBLK | 0o600, *os.fstat(fd)[1:]))
    monkeypatch.setattr(os, "fstat", lambda fd: node)
    assert filesystem_name(fd) == "block device"
    monkeypatch.undo()
    os.close(fd)


def test_a_descriptor_that_cannot_be_asked_has_an_unknown_file_system() -> None:
    assert filesystem_name(-1) == "unknown"


def test_a_file_system_that_says_nothing_of_alignment_has_none() -> None:
    fd = os.open("/proc/self/status", os.O_RDONLY)
    assert direct_alignment(fd) is None
    os.close(fd)
