"""Facts that the kernel tells about an open file: file system, alignment for direct I/O, cached pages.

Knows nothing of what follows from them; `direct.py` judges. Everything goes through the C library by ctypes,
so that it works without a compiled module. Each function says what it answers where the kernel is too old.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
from typing import NamedTuple

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)

# linux/magic.h and, for those outside the kernel's tree, the projects' own headers
_NAMES = {
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
    0x958458F6: "hugetlbfs",
    0x73717368: "squashfs",
    0xE0F5E1E2: "erofs",
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0xF2F52010: "f2fs",
    0xCA451A4E: "bcachefs",
    0x2FC12FC1: "zfs",
    0x794C7630: "overlay",
    0xF15F: "ecryptfs",
    0x65735546: "fuse",
    0x6969: "nfs",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x01021997: "9p",
    0x786F4256: "vboxsf",
    0xBACBACBC: "vmhgfs",
    0x5346544E: "ntfs",
    0x7366746E: "ntfs3",
    0x2011BAB0: "exfat",
    0x4D44: "vfat",
    0x00C36400: "ceph",
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
}

_STATX_DIOALIGN = 0x2000
_STATX_SIZE = 256
_AT_EMPTY_PATH = 0x1000


class Alignment(NamedTuple):
    """What direct I/O on a file asks of memory addresses and of offsets and lengths, in bytes."""

    memory: int
    offset: int


def filesystem_name(fd: int) -> str:
    """Name of the file system that holds `fd`; its magic number in hexadecimal if it is not a known one.

    ext2, ext3 and ext4 share a number and are all called ext4. A block device is "block device": statfs would
    tell of the tmpfs that holds its name.
    """
    # struct statfs begins with f_type, a long on all but s390x; 512 bytes hold the rest on every platform
    buffer = (ctypes.c_long * 64)()
    if _libc.fstatfs(fd, buffer) != 0:
        return "unknown"
    if stat.S_ISBLK(os.fstat(fd).st_mode):
        return "block device"
    magic = buffer[0] & 0xFFFFFFFF
    return _NAMES.get(magic, f"file system {magic:#x}")


def direct_alignment(fd: int) -> Alignment | None:
    """What statx says of direct I/O on `fd`: (0, 0) means that it is not supported.

    None where nothing is said: Linux before 6.1, a file system without STATX_DIOALIGN, a C library without
    statx.
    """
    if not hasattr(_libc, "statx"):
        return None
    # struct statx (linux/stat.h): stx_mask at 0, stx_dio_mem_align at 0x98, stx_dio_offset_align at 0x9c
    buffer = (ctypes.c_uint32 * (_STATX_SIZE // 4))()
    if _libc.statx(fd, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, buffer) != 0:
        return None
    if not buffer[0] & _STATX_DIOALIGN:
        return None
    return Alignment(memory=buffer[0x98 // 4], offset=buffer[0x9C // 4])


def cached_pages(fd: int, offset: int, nbytes: int) -> int | None:
    """How many pages of `nbytes` bytes from `offset` (page-aligned) the page cache holds.

    None where it cannot be known: no memory mapping, or no right to ask. For a file that the caller can
    neither write nor owns, Linux answers "all of them"; only a smaller number is then informative.
    """
    try:
        mapping = mmap.mmap(fd, nbytes, prot=mmap.PROT_READ, offset=offset)
    except (OSError, ValueError):
        return None
    pages = -(-nbytes // mmap.PAGESIZE)
    resident = (ctypes.c_ubyte * pages)()
    view = np.frombuffer(mapping, dtype=np.uint8)
    failed = _libc.mincore(ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(nbytes), resident)
    del view
    mapping.close()
    return None if failed else sum(flag & 1 for flag in resident)


def evict(fd: int, offset: int, nbytes: int) -> None:
    """Asks the page cache to forget clean pages of this range; dirty and mapped pages stay."""
    os.posix_fadvise(fd, offset, nbytes, os.POSIX_FADV_DONTNEED)


def data_bytes(fd: int, nbytes: int) -> int:
    """How many of the first `nbytes` bytes have blocks behind them; reading the rest, holes, reads no drive.

    A file system without SEEK_DATA says that all of them have.
    """
    total = position = 0
    try:
        while position < nbytes:
            start = os.lseek(fd, position, os.SEEK_DATA)
            position = os.lseek(fd, start, os.SEEK_HOLE)
            total += min(position, nbytes) - min(start, nbytes)
    except OSError as error:
        if error.errno != errno.ENXIO:  # no data after `position`
            return nbytes
    return total


def cached_share(fd: int, nbytes: int, *, samples: int = 64) -> float:
    """About which part of a file's first `nbytes` bytes the page cache holds, from windows of 1 MiB.

    0 where it cannot be known.
    """
    window = 1 << 20
    count = -(-nbytes // window)
    step = max(1, count // samples)
    resident = pages = 0
    for number in range(0, count, step):
        length = min(window, nbytes - number * window)
        resident += cached_pages(fd, number * window, length) or 0
        pages += -(-length // mmap.PAGESIZE)
    return resident / pages if pages else 0.0
