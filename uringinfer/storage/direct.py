"""Opens a file and says truly whether the page cache is bypassed.

An open with O_DIRECT that succeeds proves nothing: tmpfs takes it and has no drive, some file systems take it
and cache all the same. So four witnesses are heard, and `judge` weighs them: the file system's type, what
statx says of alignment, one real aligned read, and the page cache itself, which must not have grown by that
read. A misaligned read that succeeds speaks against the bypass, unless the page cache has proven it.

A file whose bypass is not proven is read through the page cache, and `Direct.reason` says why.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.storage.filesystem import (
    Alignment,
    cached_pages,
    direct_alignment,
    evict,
    filesystem_name,
)

DirectMode = Literal["auto", "require", "never"]

ALIGNMENT = 4096
"""What the containers' offsets and lengths are multiples of; a file that asks for more cannot be direct."""

IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs"})
"""File systems without a device behind them."""

_MAY_CACHE = frozenset({"fuse", "zfs", "ecryptfs", "9p", "vboxsf", "vmhgfs", "cifs", "smb2"})
_FOLIO = 2 << 20  # the page cache gives up whole folios only; none is larger than this
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Direct:
    """Whether reads of a file bypass the page cache, why, and the alignments (bytes) that it asks for."""

    is_direct: bool
    reason: str
    mem_align: int
    offset_align: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the witnesses say of a file opened with O_DIRECT.

    `alignment` is None where statx says nothing. `aligned_errno` is 0 if the aligned read worked.
    `misaligned_worked` is None where the file is too short to tell, `filled_cache` where the page cache could
    not be asked.
    """

    filesystem: str
    alignment: Alignment | None
    aligned_errno: int
    misaligned_worked: bool | None
    filled_cache: bool | None


@dataclass(slots=True, eq=False)
class StorageFile:
    """An open file. Make one with `open_file`; `close` it, or use it in a `with`.

    `nbytes` is the size at the time of opening. Two of them are never equal, even on one path.
    """

    path: Path
    fd: int
    nbytes: int
    direct: Direct

    def close(self) -> None:
        """Closes the descriptor; a second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_file(
    path: str | os.PathLike[str], *, direct: DirectMode = "auto", shown_as: Path | None = None
) -> StorageFile:
    """Opens `path` (a regular file or a block device) for reading.

    "auto" bypasses the page cache where that can be proven, "require" raises EnvironmentError_ with the
    reason where it cannot, "never" reads through the page cache. UsageError if `path` is missing or no file;
    EnvironmentError_ if it may not be read. `shown_as` is what messages call it instead of `path`.
    """
    path = Path(path)
    name = shown_as or path
    _check_is_file(path)
    if direct == "never":
        fd, found = _open(path, 0), _buffered("the page cache was asked for")
    else:
        fd, found = _open_direct(path)
    with _closed_on_error(fd):
        if direct == "require" and not found.is_direct:
            raise EnvironmentError_(
                f"{name}: no direct I/O: {found.reason}",
                hint="move it to a local ext4, xfs or btrfs file system, or do without direct I/O",
            )
        return StorageFile(name, fd, _size(fd), found)


def judge(evidence: Evidence) -> Direct:
    """Weighs what the witnesses say; pure."""
    name = evidence.filesystem
    alignment = evidence.alignment
    if name in IN_MEMORY:
        return _buffered(f"{name} keeps its files in memory, there is no drive behind it")
    if name in _MAY_CACHE:
        return _buffered(f"{name} accepts O_DIRECT and may cache all the same")
    if name == "overlay" and alignment is None:
        return _buffered(
            "overlay hides the file system below it, and only Linux 6.1 and later tell its alignment"
        )
    if alignment is not None and 0 in alignment:
        return _buffered(f"{name} does not support it for this file")
    if alignment is not None and max(alignment) > ALIGNMENT:
        return _buffered(
            f"{name} asks for memory aligned to {alignment.memory} and offsets aligned to {alignment.offset} "
            f"bytes, data here is aligned to {ALIGNMENT}"
        )
    if evidence.aligned_errno:
        return _buffered(
            f"{name} failed a read of {ALIGNMENT} aligned bytes: {os.strerror(evidence.aligned_errno)}"
        )
    if evidence.filled_cache:
        return _buffered(f"{name} accepts O_DIRECT, but the bytes read through it are in the page cache")
    if evidence.misaligned_worked and evidence.filled_cache is None:
        return _buffered(f"{name} takes misaligned reads, so they go through a cache")
    mem_align, offset_align = alignment or (ALIGNMENT, ALIGNMENT)
    if evidence.filled_cache is False:
        proof = "the page cache stayed empty"
    elif evidence.misaligned_worked is False:
        proof = "misaligned reads are refused"
    elif alignment is not None:
        proof = "statx names its alignment"
    else:
        return _buffered(f"nothing proves that {name} bypasses the page cache")
    return Direct(True, f"{name}, {proof}", mem_align, offset_align)


def gather(fd: int, nbytes: int) -> Evidence:
    """Asks all witnesses about `fd`, which was opened with O_DIRECT and holds `nbytes` bytes."""
    alignment = direct_alignment(fd)
    middle = nbytes // 2 // ALIGNMENT * ALIGNMENT
    with mmap.mmap(-1, 2 * ALIGNMENT) as memory, memoryview(memory) as window:
        block = window[:ALIGNMENT]
        evidence = Evidence(
            filesystem=filesystem_name(fd),
            alignment=alignment,
            aligned_errno=_read_errno(fd, block, middle),
            misaligned_worked=_misaligned_read_works(fd, window, alignment),
            filled_cache=_fills_cache(fd, block, middle) if nbytes else None,
        )
        block.release()
    return evidence


def _check_is_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: no such file", hint="check the path") from None
    except PermissionError as error:
        raise EnvironmentError_(f"{path}: {error.strerror}", hint="make its directories accessible") from None
    # anything else could block the open for ever (a pipe) or has no offsets
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        raise UsageError(f"{path}: not a regular file or block device", hint="check the path")


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    except PermissionError as error:
        raise EnvironmentError_(f"{path}: {error.strerror}", hint="make it readable for this user") from None


def _open_direct(path: Path) -> tuple[int, Direct]:
    try:
        fd = _open(path, os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fd = _open(path, 0)
        return fd, _buffered(f"{filesystem_name(fd)} refuses to open with O_DIRECT")
    with _closed_on_error(fd):
        found = judge(gather(fd, _size(fd)))
        if not found.is_direct:
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_DIRECT)
    return fd, found


@contextlib.contextmanager
def _closed_on_error(fd: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(fd)
        raise


def _buffered(reason: str) -> Direct:
    return Direct(is_direct=False, reason=reason, mem_align=1, offset_align=1)


def _size(fd: int) -> int:
    status = os.fstat(fd)
    return os.lseek(fd, 0, os.SEEK_END) if stat.S_ISBLK(status.st_mode) else status.st_size


def _read_errno(fd: int, block: memoryview, offset: int) -> int:
    try:
        os.preadv(fd, [block], offset)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _misaligned_read_works(fd: int, window: memoryview, alignment: Alignment | None) -> bool | None:
    """Whether a read at an offset that statx forbids moves bytes all the same; None if it met the end."""
    step = alignment.offset if alignment is not None and alignment.offset > 1 else 512
    with window[: min(step, len(window))] as block:
        try:
            return os.preadv(fd, [block], step // 2) > 0 or None
        except OSError:
            return False


def _fills_cache(fd: int, block: memoryview, offset: int) -> bool | None:
    """Whether reading `block` leaves its page in the page cache; None if the page was there and stays."""
    answer: bool | None = None
    # somebody else may read the same page in between, but hardly every time
    for _ in range(_ATTEMPTS):
        evict(fd, offset // _FOLIO * _FOLIO, _FOLIO)
        if cached_pages(fd, offset, len(block)) != 0:
            return answer
        if _read_errno(fd, block, offset):
            return answer
        answer = cached_pages(fd, offset, len(block)) != 0
        if not answer:
            return False
    return answer
