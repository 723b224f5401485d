"""Files that a run writes at its end or all along: looked at before the run, which may take hours."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from uringinfer.errors import EnvironmentError_
from uringinfer.storage.regular import replaceable


def check_writable(path: Path | str, *, in_one_step: bool = False, hint: str = "choose another file") -> None:
    """Raises EnvironmentError_ if it can be seen already that the file `path` cannot be written.

    `in_one_step`: it is written beside its place and renamed, so the directory must take a new file even
    where `path` exists, and a device or a pipe would be done away with. Nothing is created or changed.
    """
    path = Path(path)
    problem = _problem(path, in_one_step=in_one_step)
    if problem is None and in_one_step:
        problem = _problem(replaceable(path), in_one_step=True)
    if problem is not None:
        raise EnvironmentError_(f"cannot write {path}: {os.strerror(problem)}", hint=hint)


def _problem(path: Path, *, in_one_step: bool) -> int | None:
    if path.is_dir():
        return errno.EISDIR
    if path.exists() and not in_one_step:
        return None if os.access(path, os.W_OK) else errno.EACCES
    if not path.parent.exists():
        return errno.ENOENT
    if not path.parent.is_dir():
        return errno.ENOTDIR
    return None if os.access(path.parent, os.W_OK | os.X_OK) else errno.EACCES
