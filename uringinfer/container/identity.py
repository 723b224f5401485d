"""Whether a container's files are still those that were there when it was opened.

A model is opened first and loaded later, and in between somebody may pack it again. Then the manifest in
memory is not that of the files, and every read would be called damaged. So each file is recognised by device,
inode, size and time of the last change.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from uringinfer.errors import EnvironmentError_, IntegrityError


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What another file under the same name does not have, nor this one after it was written to."""

    device: int
    inode: int
    nbytes: int
    mtime_ns: int

    @classmethod
    def of(cls, file: Path | int) -> FileIdentity:
        """That of a path or an open descriptor. Raises EnvironmentError_ if it cannot be looked at."""
        try:
            status = os.fstat(file) if isinstance(file, int) else file.stat()
        except OSError as error:
            raise EnvironmentError_(f"cannot look at {file}: {os.strerror(error.errno or 0)}") from error
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def identities(paths: Iterable[Path]) -> dict[Path, FileIdentity]:
    """Those of files as they are now."""
    return {path: FileIdentity.of(path) for path in paths}


def check_unchanged(known: Mapping[Path, FileIdentity], descriptors: Mapping[Path, int]) -> None:
    """Raises IntegrityError if a file is not what was `known` of it. `descriptors` are those that are open
    already; the others are looked at by their names."""
    for path, identity in known.items():
        if FileIdentity.of(descriptors.get(path, path)) != identity:
            raise IntegrityError(
                f"{path} was replaced or written to after the model was opened",
                hint="open the model again, once nobody packs or copies it",
            )
