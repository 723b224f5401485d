"""The directory that a container is built in, `NAME.uring.partial`, until it is whole.

Nothing that looks like a container exists under the final name before `commit`, which writes the manifest
last and renames the directory. What an interrupted pack left behind is kept for the next one if the journal
says that it is the same job, and dropped otherwise.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from uringinfer.container.manifest import MANIFEST_NAME
from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.packing.journal import JOURNAL_NAME, Journal
from uringinfer.packing.writer import OutputFile, write_error
from uringinfer.storage.regular import sync_directory
from uringinfer.units import format_size

SPARE_BYTES = 16 << 20
"""Room for directories, journal and manifest beyond the weights."""


class Staging:
    """The files of a container in the making. `file_bytes` gives name and size of each.

    Raises UsageError if `out` exists and may not be replaced, EnvironmentError_ if the space is not there or
    another pack is at work.
    """

    def __init__(self, out: Path, key: str, file_bytes: Mapping[str, int], *, force: bool) -> None:
        check_replaceable(out, force=force)
        self.out = out
        self.path = partial_path(out)
        _check_ours(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.journal = Journal(self.path / JOURNAL_NAME, key)
        except OSError as error:
            raise EnvironmentError_(
                f"cannot write to {self.path}: {os.strerror(error.errno or 0)}"
            ) from error
        self.files: dict[str, OutputFile] = {}
        try:
            if self.journal.is_new:
                self._clear()
            check_space(self.path, sum(file_bytes.values()) + SPARE_BYTES)
            for name, nbytes in file_bytes.items():
                self.files[name] = OutputFile(self.path / name, nbytes)
        except BaseException:
            if self.journal.is_new:  # there is nothing to continue with
                shutil.rmtree(self.path)
            self.close()
            raise

    def _clear(self) -> None:
        """Removes what another job left."""
        for path in self.path.iterdir():
            if path.name != JOURNAL_NAME:
                path.unlink()

    def add(self, name: str, data: bytes) -> None:
        """Writes a small file and makes sure that the drive has it."""
        write_synced(self.path / name, data)

    def commit(self, manifest: str) -> None:
        """Makes everything durable, then the manifest, then gives the directory its final name."""
        for file in self.files.values():
            file.sync()
        sync_directory(self.path)
        self.add(f"{MANIFEST_NAME}.new", manifest.encode())
        (self.path / f"{MANIFEST_NAME}.new").rename(self.path / MANIFEST_NAME)
        self.journal.remove()
        sync_directory(self.path)
        if (self.out / MANIFEST_NAME).exists():
            shutil.rmtree(self.out)
        self.path.rename(self.out)
        sync_directory(self.out.parent)

    def close(self) -> None:
        """Closes the files; what is written stays for the next pack."""
        for file in self.files.values():
            file.close()
        self.journal.close()


def write_synced(path: Path, data: bytes) -> None:
    """Writes a small file and makes sure that the drive has it; EnvironmentError_ if that fails."""
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
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


def lacking_space(path: Path, needed: int) -> str | None:
    """Both numbers in words if `needed` bytes, less what files in `path` already take, are not free in its
    file system; None if they are."""
    present = sum(file.stat().st_blocks * 512 for file in path.iterdir()) if path.is_dir() else 0
    missing = needed - present
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
    if path.is_dir() and any(path.iterdir()):
        marks = (path / JOURNAL_NAME, path / MANIFEST_NAME)
        if not any(mark.exists() for mark in marks):
            raise UsageError(f"{path} exists and was not left by a pack", hint="move or remove it")
