"""Opens a checkpoint's files, whatever lies there: a pipe under a shard's name must not stop the program."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from uringinfer.errors import IntegrityError


def open_regular(path: Path) -> BinaryIO:
    """The regular file `path`, or what a link there leads to, open for reading.

    Never waits for another process. Raises IntegrityError for a pipe, a socket, a device or a directory,
    OSError for what cannot be opened.
    """
    try:
        # without O_NONBLOCK, opening a pipe would wait for its writer; it means nothing to a regular file
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # what a socket answers
            raise _irregular(path) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _irregular(path)
    return os.fdopen(fd, "rb")


def _irregular(path: Path) -> IntegrityError:
    return IntegrityError(f"{path}: is no regular file", hint="put the checkpoint's own file in its place")
