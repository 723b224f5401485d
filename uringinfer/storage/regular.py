"""Opens and replaces files, whatever lies under their names: a pipe in the place of a model's file must not
stop a run, and a device in the place of an output must outlive it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from pathlib import Path

from uringinfer.errors import EnvironmentError_, IntegrityError

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TOKEN_BYTES = 8
_NAME_CHARACTERS = 40
"""Of a file's name in that of its temporary one, at most: a name has 255 bytes, a character up to four."""


def open_regular(path: Path) -> BufferedReader:
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


def read_regular(path: Path) -> bytes:
    """All bytes of the regular file `path`. Raises as `open_regular` does."""
    with open_regular(path) as file:
        return file.read()


def replaceable(path: Path) -> Path:
    """Where a new file that takes the place of `path` in one step has to be renamed to: `path` itself, or
    what a link there leads to, so that the link stays one.

    Renaming would do away with whatever has the name. Raises EnvironmentError_ for anything but a regular
    file or nothing at all.
    """
    place = Path(os.path.realpath(path))
    if os.path.lexists(place) and not place.is_file():
        raise EnvironmentError_(
            f"cannot write {path}: it is no regular file, and would be replaced", hint="choose another file"
        )
    return place


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BufferedWriter]:
    """A new file that takes the place of `path` in one step, and for good, where the `with` ends cleanly.
    Where it does not, an older file is as it was, and nothing else is left; what a kill leaves, the next
    call for the same `path` removes.

    Raises as `replaceable` does; OSError if it cannot be written.
    """
    place = replaceable(path)
    _sweep(place)
    temporary, descriptor = _create_beside(place, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
            temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(place.parent)


def _create_beside(place: Path, mode: int) -> tuple[Path, int]:
    """A file beside `place` that did not exist, and its descriptor, locked for as long as it is open.

    Nobody can guess its name, and it must be new: what was planted under it is never written to.
    """
    while True:
        temporary = place.with_name(f"{_prefix(place)}{secrets.token_hex(_TOKEN_BYTES)}")
        descriptor = os.open(temporary, _NEW_FILE, mode)
        try:
            with contextlib.suppress(OSError):  # where files cannot be locked, nothing is swept either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return temporary, descriptor
        except BaseException:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        os.close(descriptor)  # swept away before it was locked


def _prefix(place: Path) -> str:
    return f".{place.name[:_NAME_CHARACTERS]}."


def _sweep(place: Path) -> None:
    """Removes temporary files for `place` whose writers were killed: ours, and locked by nobody."""
    pattern = re.compile(re.escape(_prefix(place)) + f"[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
    try:
        left = [path for path in place.parent.iterdir() if pattern.fullmatch(path.name)]
    except OSError:  # the directory may be written to, but not be listed
        return
    for path in left:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
            finally:
                os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _irregular(path: Path) -> IntegrityError:
    return IntegrityError(f"{path}: is no regular file", hint="put a file in its place")
