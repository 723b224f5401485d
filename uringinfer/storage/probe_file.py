"""A file of random bytes for measuring a drive.

It never has a name that could survive: it is opened unlinked, so the file system takes it back when the last
descriptor goes, be it by close, Ctrl-C or kill -9. Neither drive nor file system can compress it or find two
equal blocks in it, and none of it stays in the page cache.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import ALIGNMENT, DirectMode, StorageFile, open_file
from uringinfer.units import format_size

Progress = Callable[[int, int], None]

CHUNK = 32 << 20
_SPARE = 64 << 20  # a file system filled to the last byte hurts everybody on it


def random_file(
    directory: str | os.PathLike[str],
    nbytes: int,
    *,
    direct: DirectMode = "auto",
    progress: Progress | None = None,
) -> StorageFile:
    """An unlinked file of `nbytes` random bytes in `directory`, opened for reading as `open_file` does it.

    `progress` is called with (bytes written, `nbytes`) now and then. Other programs find the file at
    /proc/PID/fd/FD while it is open. Raises EnvironmentError_ if the space is not there, UsageError if
    `directory` is no directory.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory", hint="name one on the drive to measure")
    _check_space(directory, nbytes)
    fd = _open_unlinked(directory)
    try:
        _write_random(fd, nbytes, progress)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return open_file(f"/proc/self/fd/{fd}", direct=direct, shown_as=directory / "(test file)")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise EnvironmentError_(
            f"{directory}: the space for a test file of {format_size(nbytes)} ran out",
            hint="use a smaller one",
        ) from None
    finally:
        os.close(fd)


def random_chunks(nbytes: int, buffer: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """`nbytes` random bytes, in turn in the front of `buffer` (uint8 [multiple of 8]).

    One pool of noise, xored with another number for each chunk: as fast as memory, incompressible over any
    distance that a drive or file system looks at, and no two blocks are equal.
    """
    random = np.random.default_rng()
    words = buffer.view(np.uint64)
    pool = random.integers(0, 1 << 64, words.size, dtype=np.uint64)
    for start in range(0, nbytes, buffer.size):
        np.bitwise_xor(pool, random.integers(0, 1 << 64, dtype=np.uint64), out=words)
        yield buffer[: min(buffer.size, nbytes - start)]


def _check_space(directory: Path, nbytes: int) -> None:
    status = os.statvfs(directory)
    free = status.f_bavail * status.f_frsize
    if free < nbytes + _SPARE:
        raise EnvironmentError_(
            f"{directory}: {format_size(free)} are free, a test file of {format_size(nbytes)} and "
            f"{format_size(_SPARE)} to spare do not fit",
            hint="free some, or use a smaller file",
        )


def _open_unlinked(directory: Path) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EROFS):
            raise EnvironmentError_(
                f"{directory}: cannot write a test file: {error.strerror}",
                hint="name a directory to write to",
            ) from None
    # a file system without O_TMPFILE: the name exists for a moment
    fd, name = tempfile.mkstemp(prefix=".uringinfer-probe-", dir=directory)
    Path(name).unlink()
    return fd


def _write_random(fd: int, nbytes: int, progress: Progress | None) -> None:
    # past the page cache where that works: what is not cached need not be evicted
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    with Arena(min(CHUNK, nbytes)) as arena:
        written = 0
        for chunk in random_chunks(-(-nbytes // ALIGNMENT) * ALIGNMENT, arena.carve(arena.nbytes)):
            view = chunk.data
            while view:
                count = os.pwrite(fd, view, written)
                written += count
                view = view[count:]
            if progress is not None:
                progress(min(written, nbytes), nbytes)
    os.ftruncate(fd, nbytes)
