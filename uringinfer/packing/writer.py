"""Writing a container's files: pre-sized, past the page cache, and checked as it is written.

`OutputFile` is a file of final size that any thread writes aligned pieces of; `BlockStream` gathers the
pieces of one block in a small buffer, keeps their CRC32, and hands full buffers to the file. A block of any
size takes no more memory than that buffer.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.checksum import crc32
from uringinfer.container.manifest import ALIGNMENT
from uringinfer.errors import EnvironmentError_
from uringinfer.packing.windows import READ_BYTES
from uringinfer.storage.direct import open_file

Bytes = NDArray[np.uint8]

BUFFER_BYTES = READ_BYTES
"""Filled by one read, if a single tensor fills it."""


def write_error(path: Path, offset: int, nbytes: int, error: OSError) -> EnvironmentError_:
    """The error of a write of `nbytes` at `offset` that failed."""
    hint = "what was written stays; run the same command again to continue"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some space, then run the same command again to continue"
    cause = os.strerror(error.errno or errno.EIO)
    return EnvironmentError_(f"{path}: writing {nbytes} bytes at offset {offset} failed: {cause}", hint=hint)


class OutputFile:
    """A file of `nbytes` (a multiple of 4096), created if it is not there, kept if it is. `reserve` takes
    its space at once.

    Raises EnvironmentError_ if it cannot be made or its space cannot be had.
    """

    def __init__(self, path: Path, nbytes: int, *, reserve: bool = True) -> None:
        self.path = path
        self.nbytes = nbytes
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(self._fd, nbytes)
                if reserve:
                    self._reserve(nbytes)
            except BaseException:
                os.close(self._fd)
                raise
        except OSError as error:
            raise write_error(path, 0, nbytes, error) from error
        self._reopen_direct()

    def _reserve(self, nbytes: int) -> None:
        """Takes the space now, so that it cannot run out later where the file system can promise that."""
        if nbytes:
            try:
                os.posix_fallocate(self._fd, 0, nbytes)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise

    def _reopen_direct(self) -> None:
        """Bypasses the page cache where that is possible: a large model would throw out all else."""
        with open_file(self.path) as file:
            direct = file.direct
        self.is_direct = direct.is_direct and max(direct.mem_align, direct.offset_align) <= ALIGNMENT
        if self.is_direct:
            os.close(self._fd)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)

    def write(self, offset: int, data: Bytes) -> None:
        """All of `data` at `offset`; address, offset and length are multiples of 4096.

        Raises EnvironmentError_ naming file and offset if the drive refuses.
        """
        done = 0
        while done < len(data):
            try:
                count = os.pwrite(self._fd, data[done:].data, offset + done)
                if count == 0:
                    raise OSError(errno.EIO, "nothing was written")
            except OSError as error:
                raise write_error(self.path, offset + done, len(data) - done, error) from error
            done += count

    def sync(self) -> None:
        """Returns when the drive has everything."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise write_error(self.path, 0, self.nbytes, error) from error

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockStream:
    """Writes one block of `file` from `offset` on, in order; the aligned `buffer` is its own meanwhile."""

    def __init__(self, file: OutputFile, offset: int, buffer: Bytes) -> None:
        self.position = 0
        """Bytes of the block so far."""
        self.crc32 = 0
        """The checksum of what was written; complete after `finish`."""
        self._file = file
        self._offset = offset
        self._buffer = buffer
        self._used = 0

    @property
    def room(self) -> int:
        """Bytes that `take` can give before a `flush`."""
        return len(self._buffer) - self._used

    def take(self, nbytes: int) -> Bytes:
        """The next `nbytes` (at most `room`) of the block; the caller fills them before the next call."""
        view = self._buffer[self._used : self._used + nbytes]
        self._used += nbytes
        self.position += nbytes
        return view

    def zeros(self, nbytes: int) -> None:
        while nbytes > 0:
            if self.room == 0:
                self.flush()
            count = min(nbytes, self.room)
            self.take(count)[:] = 0
            nbytes -= count

    def finish(self) -> int:
        """Writes what is left; the block's length must be a multiple of 4096. Returns its CRC32."""
        self.flush()
        return self.crc32

    def flush(self) -> None:
        """Writes the whole aligned part of the buffer and moves the rest to its start."""
        whole = self._used // ALIGNMENT * ALIGNMENT
        data = self._buffer[:whole]
        self._file.write(self._offset, data)
        self.crc32 = crc32(data, self.crc32)
        self._offset += whole
        self._buffer[: self._used - whole] = self._buffer[whole : self._used]
        self._used -= whole
