"""Gives back the space of a checkpoint that was packed: the only place that deletes what it did not write."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from uringinfer.container.verifier import verify
from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError

ASKED = 2
"""How often deleting must be asked for."""


def check_asked(times: int) -> bool:
    """Whether deleting was asked for. Raises UsageError if it was asked for once only."""
    if times not in (0, ASKED):
        raise UsageError(
            "--reclaim deletes the checkpoint's weight files once the container is whole and verified",
            hint="give it twice to mean it",
        )
    return times == ASKED


def reclaim(checkpoint: Path, names: Iterable[str], container: Path) -> int:
    """Deletes the weight files `names` of `checkpoint`, a directory or one of its files; returns the bytes
    given back.

    Every checksum of `container` is read back first. Raises IntegrityError, with nothing deleted, if one does
    not agree; EnvironmentError_ naming a file that cannot be deleted.
    """
    report = verify(container)
    if not report.ok:
        raise IntegrityError(
            f"{container} is damaged ({report.damaged[0]}); the checkpoint was not touched",
            hint="pack it again with --force",
        )
    freed = 0
    directory = checkpoint if checkpoint.is_dir() else checkpoint.parent
    for path in (directory / name for name in names):
        # A download cache keeps the bytes elsewhere and links to them.
        for file in {path, Path(os.path.realpath(path))}:
            freed += _delete(file)
    return freed


def _delete(file: Path) -> int:
    try:
        nbytes = 0 if file.is_symlink() else file.stat().st_size
        file.unlink()
    except OSError as error:
        raise EnvironmentError_(f"cannot delete {file}: {os.strerror(error.errno or 0)}") from error
    return nbytes
