"""The directory that a container is built in, `NAME.uring.partial`, until it is whole.

Nothing that looks like a container exists under the final name before `commit`, which writes the manifest
last and renames the directory. An older container is exchanged with the new one in one step and deleted then;
where the file system cannot exchange, it waits aside as `NAME.uring.replaced` for the moment between two
renames. Whatever kills a pack, the older or the new container stands whole, and the next pack tidies up.

What an interrupted pack left behind is kept for the next one if the journal says that it is the same job, and
dropped otherwise. The lock is held on the directory itself, from before the journal is read until the
container has its name: it outlives the journal, which goes last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from uringinfer.container.manifest import MANIFEST_NAME
from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.packing.journal import JOURNAL_NAME, Journal
from uringinfer.packing.writer import OutputFile, write_error
from uringinfer.storage.directories import DirectoryLock, exchange
from uringinfer.storage.regular import replacing, sync_directory
from uringinfer.units import format_size

SPARE_BYTES = 16 << 20
"""Room for directories, journal and manifest beyond the weights."""


class Staging:
    """The files of a container in the making. `file_bytes` gives name and size of each. With `room`, space
    is not taken at once: so many bytes must be free, and more becomes free as the source is given back.

    Raises UsageError if `out` exists and may not be replaced, EnvironmentError_ if the space is not there or
    another pack is at work.
    """

    def __init__(
        self, out: Path, key: str, file_bytes: Mapping[str, int], *, force: bool, room: int | None = None
    ) -> None:
        self.out = out
        self._room = room
        self.path = partial_path(out)
        self._force = force
        self.files: dict[str, OutputFile] = {}
        if not any(
            map(os.path.lexists, (self.path, _aside(out)))
        ):  # nothing that was left hides what is there
            check_replaceable(out, force=force)
        _check_ours(self.path)
        try:
            busy = f"another pack is writing to {self.path}"
            self._lock = DirectoryLock(self.path, make=True, busy=busy)
        except OSError as error:
            raise _cannot_write(self.path, error) from error
        try:
            try:
                _tidy_up(out)
                check_replaceable(out, force=force)
                self.journal = Journal(self.path / JOURNAL_NAME, key)
            except OSError as error:
                raise _cannot_write(self.path, error) from error
            except UsageError:
                if not any(self.path.iterdir()):
                    self.path.rmdir()
                raise
            try:
                self._prepare(file_bytes)
            except BaseException:
                if self.journal.is_new:  # there is nothing to continue with
                    discard(self.path)
                self.journal.close()
                raise
        except BaseException:
            self._close_files()
            raise

    def _prepare(self, file_bytes: Mapping[str, int]) -> None:
        # of an interrupted run of this very job its weights are kept, of any other nothing
        _clear(self.path, keep=() if self.journal.is_new else file_bytes)
        needed = sum(file_bytes.values()) if self._room is None else self._room + _present(self.path)
        check_space(self.path, needed + SPARE_BYTES)
        for name, nbytes in file_bytes.items():
            self.files[name] = OutputFile(self.path / name, nbytes, reserve=self._room is None)

    def add(self, name: str, data: bytes) -> None:
        """Writes a small file and makes sure that the drive has it."""
        write_synced(self.path / name, data)

    def commit(self, manifest: str) -> None:
        """Makes everything durable, then the manifest, then gives the directory its final name.

        Raises EnvironmentError_, with what was there before untouched, if somebody else took the directory
        away or changes the container that is to be replaced.
        """
        for file in self.files.values():
            file.sync()
        sync_directory(self.path)
        self.add(MANIFEST_NAME, manifest.encode())
        if not self._lock.is_at(self.path):
            raise EnvironmentError_(
                f"{self.path} was taken away during the pack: another process removed or renamed it",
                hint=f"nothing was changed at {self.out}; run the same command again",
            )
        check_replaceable(self.out, force=self._force)
        if (self.out / MANIFEST_NAME).exists():
            self._replace()
        else:
            self.path.rename(self.out)
            sync_directory(self.out.parent)
        (self.out / JOURNAL_NAME).unlink()
        sync_directory(self.out)

    def _replace(self) -> None:
        with DirectoryLock(self.out, busy=f"another process is changing {self.out}"):
            left = self.path
            if not exchange(self.path, self.out):
                left = _aside(self.out)
                self.out.rename(left)
                self.path.rename(self.out)
            sync_directory(self.out.parent)
            discard(left)

    def close(self) -> None:
        """Closes the files; what is written stays for the next pack."""
        self.journal.close()
        self._close_files()

    def _close_files(self) -> None:
        for file in self.files.values():
            file.close()
        self._lock.close()


def _cannot_write(path: Path, error: OSError) -> EnvironmentError_:
    return EnvironmentError_(f"cannot write to {path}: {os.strerror(error.errno or 0)}")


def _aside(out: Path) -> Path:
    """Where the older container waits while the new one gets its name, without exchange."""
    return out.with_name(out.name + ".replaced")


def _tidy_up(out: Path) -> None:
    """Undoes or completes what a pack that was killed in its last steps left. Needs the lock."""
    aside = _aside(out)
    if _is_left_by_pack(aside):
        if os.path.lexists(out):
            discard(aside)
        else:
            aside.rename(out)
            sync_directory(out.parent)
    if (out / MANIFEST_NAME).exists():
        (out / JOURNAL_NAME).unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Deletes a directory that a pack made; killed meanwhile, it is one that the next pack may delete."""
    (path / JOURNAL_NAME).touch()
    _clear(path)
    (path / JOURNAL_NAME).unlink()
    path.rmdir()


def _clear(path: Path, keep: Collection[str] = ()) -> None:
    """Removes all but the journal and what has a name to `keep`."""
    for entry in path.iterdir():
        if entry.name == JOURNAL_NAME or entry.name in keep:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def write_synced(path: Path, data: bytes) -> None:
    """Writes a small file in one step and for good; EnvironmentError_ if that fails."""
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise write_error(path, 0, len(data), error) from error


def partial_path(out: Path) -> Path:
    """Where the container `out` is built."""
    return out.with_name(out.name + ".partial")


def check_replaceable(out: Path, *, force: bool) -> None:
    """Raises UsageError unless `out` is absent, an empty directory, or a container that `force` gives up."""
    if not os.path.lexists(out):
        return
    if not out.is_dir() or out.is_symlink():
        raise UsageError(f"{out} exists and is no directory", hint="choose another output")
    is_container = (out / MANIFEST_NAME).exists()
    if not is_container and any(out.iterdir()):
        raise UsageError(f"{out} exists and is no container", hint="choose another output, or remove it")
    if is_container and not force:
        raise UsageError(f"{out} exists", hint="use --force to replace it")


def _present(path: Path) -> int:
    """Bytes that the files in a directory take on the drive."""
    return sum(file.stat().st_blocks * 512 for file in path.iterdir()) if path.is_dir() else 0


def lacking_space(path: Path, needed: int) -> str | None:
    """Both numbers in words if `needed` bytes, less what files in `path` already take, are not free in its
    file system; None if they are."""
    missing = needed - _present(path)
    existing = next(parent for parent in (path, *path.absolute().parents) if parent.is_dir())
    status = os.statvfs(existing)
    free = status.f_bavail * status.f_frsize
    if missing <= free:
        return None
    return (
        f"{existing}: {format_size(missing)} ({missing} bytes) needed,"
        f" {format_size(free)} ({free} bytes) free"
    )


def check_space(path: Path, needed: int) -> None:
    """Raises EnvironmentError_ with both numbers if the space is lacking."""
    lacking = lacking_space(path, needed)
    if lacking is not None:
        raise EnvironmentError_(lacking, hint="free some space, or choose another output")


def _check_ours(path: Path) -> None:
    """An existing partial directory must be one that a pack left; its files will be written over."""
    if path.is_dir() and any(path.iterdir()) and not _is_left_by_pack(path):
        raise UsageError(f"{path} exists and was not left by a pack", hint="move or remove it")


def _is_left_by_pack(path: Path) -> bool:
    return any((path / mark).exists() for mark in (JOURNAL_NAME, MANIFEST_NAME))
