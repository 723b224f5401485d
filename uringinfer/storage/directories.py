"""Directories that are changed as a whole: locked against others, exchanged in one step.

A lock is held on the directory itself, not on a file in it or beside it: it goes wherever the directory is
renamed to, outlives every file inside, and leaves nothing behind when its process is killed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from pathlib import Path
from typing import Self

from uringinfer.errors import EnvironmentError_

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems and kernels answer that cannot exchange names."""


class DirectoryLock:
    """A lock on the directory `path`, which nobody else holds; freed by `close`, or with the process.

    `make` makes the directory if it is not there. Raises EnvironmentError_ if another process holds the lock
    (`busy` says in words who that may be), OSError for what cannot be opened.
    """

    def __init__(self, path: Path, *, busy: str, make: bool = False) -> None:
        while True:
            if make:
                path.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._lock(path, busy)
                if self.is_at(path):
                    return
            except BaseException:
                os.close(self._fd)
                raise
            os.close(self._fd)  # renamed or removed by whoever held the lock until now

    def _lock(self, path: Path, busy: str) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentError_(busy, hint="wait for it, or choose another output") from None
        except OSError as error:
            raise EnvironmentError_(
                f"cannot lock {path}: {os.strerror(error.errno or 0)}", hint="write to a local drive"
            ) from error

    def is_at(self, path: Path) -> bool:
        """Whether `path` is the locked directory still."""
        try:
            return os.path.samestat(os.fstat(self._fd), path.lstat())
        except OSError:
            return False

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def exchange(first: Path, second: Path) -> bool:
    """Exchanges two names in one step; False, with nothing done, where the file system cannot.

    Raises OSError for what else goes wrong.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(first), None, str(second))
