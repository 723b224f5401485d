"""Whether the drives of a sharded container are there, are its own, and hold what they must.

The directories' paths are the only ones in a manifest that leave the container, so each must hold a marker
that names this very sharding: a manifest alone cannot make anybody read other files.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from uringinfer.container.fields import parse_object
from uringinfer.container.manifest import Manifest
from uringinfer.container.sharding import MARKER_NAME, marker
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.storage.regular import open_regular

_MAX_MARKER_BYTES = 4096
_REMEDY = "mount the drive where it was, or pack the checkpoint again"


def check_drives(manifest: Manifest) -> None:
    """Raises IntegrityError naming the first drive that is missing, is not this container's, or holds a bank
    of the wrong size."""
    sharding = manifest.sharding
    if sharding is None:
        return
    for number, drive in enumerate(sharding.drives):
        which = f"drive {number + 1} of {len(sharding.drives)}"
        directory = Path(drive)
        if not directory.is_dir():
            raise IntegrityError(f"{which} is missing: {directory}", hint=_REMEDY)
        _check_marker(directory, which, marker(sharding, number))
        for bank in manifest.banks:
            nbytes = sharding.count(number, bank.num_experts) * bank.record_bytes
            _check_bank_file(directory / bank.file, nbytes)


def _check_marker(directory: Path, which: str, expected: dict[str, Any]) -> None:
    path = directory / MARKER_NAME
    try:
        with open_regular(path) as file:
            found = parse_object(file.read(_MAX_MARKER_BYTES), str(path))
    except OSError as error:
        raise IntegrityError(f"{which}: cannot read {path}: {os.strerror(error.errno or 0)}") from error
    if found != expected:
        raise IntegrityError(f"{which}: {directory} belongs to another container or sharding", hint=_REMEDY)


def _check_bank_file(path: Path, nbytes: int) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise IntegrityError(f"{path} is missing, {nbytes} bytes by the manifest", hint=_REMEDY) from None
    except OSError as error:
        raise EnvironmentError_(f"cannot look at {path}: {os.strerror(error.errno or 0)}") from error
    if not stat.S_ISREG(status.st_mode):
        raise IntegrityError(f"{path}: not a regular file")
    if status.st_size != nbytes:
        raise IntegrityError(f"{path}: holds {status.st_size} bytes, {nbytes} by the manifest", hint=_REMEDY)
