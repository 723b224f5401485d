"""What lies in a checkpoint's place when a download did not finish, or fetched something else: a Git-LFS
pointer, a web page, a link into a cache whose blob is not there yet, a file that a program still writes.
Each is called what it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from uringinfer.errors import IntegrityError
from uringinfer.units import format_size

_POINTER = b"version https://git-lfs.github.com/spec/v1"
HEAD_BYTES = 512
"""Bytes at the beginning of a file that `foreign_content` wants to see; a pointer has fewer."""

_UNFINISHED = (".incomplete", ".part", ".crdownload", ".aria2", ".tmp", ".partial", ".download")


def foreign_content(path: Path, head: bytes) -> IntegrityError | None:
    """The error to raise if a file that begins with `head` is no file of a checkpoint, but what stands for
    one; None if it does not look like that."""
    if head.startswith(_POINTER):
        size = re.search(rb"^size (\d{1,18})$", head, re.MULTILINE)
        what = f" of {format_size(int(size[1]))}" if size else ""
        return IntegrityError(
            f"{path}: is a Git-LFS pointer, not the file{what}",
            hint="fetch the files with 'git lfs pull' or 'hf download'",
        )
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return IntegrityError(
            f"{path}: is a web page, not the file",
            hint="download it anew: the address gave a page (a login, perhaps) in its place",
        )
    return None


def check_content(path: Path) -> None:
    """Raises IntegrityError if `path`, a file, is what `foreign_content` knows. Leaves alone what cannot be
    read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return
    try:
        head = os.read(fd, HEAD_BYTES)
    except OSError:
        return
    finally:
        os.close(fd)
    if (error := foreign_content(path, head)) is not None:
        raise error


def missing_reason(directory: Path, name: str) -> str | None:
    """Why the file `name` is not there, if that can be seen: a link to a blob that was not fetched, or a
    download that goes on or was interrupted."""
    path = directory / name
    if path.is_symlink():
        return f"{name} is a link to {path.readlink()}, which is not there: the download did not finish"
    places = (directory, directory / ".cache" / "huggingface" / "download")
    begun = [
        file.name
        for place in places
        if place.is_dir()
        for file in sorted(place.iterdir())
        if file.name.startswith(name) and file.suffix in _UNFINISHED
    ]
    return f"{name} is being downloaded, or was until it was interrupted ({begun[0]})" if begun else None


def unfinished_beside(path: Path) -> str | None:
    """The name of a download of `path` that did not finish, such as aria2's list of missing parts, if one
    lies beside it."""
    for suffix in (".aria2", ".part", ".incomplete"):
        if path.with_name(path.name + suffix).exists():
            return path.name + suffix
    return None
