"""Whether the small files of a container are what was packed: tokenizer, config, chat template, codebooks,
checksums of rows. All of them are checked when a model is opened; the last two again where they are read.
"""

from __future__ import annotations

import os
from pathlib import Path

from uringinfer.container.checksum import crc32
from uringinfer.container.manifest import MANIFEST_NAME, AuxiliaryFile, Manifest
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.storage.regular import open_regular

_PIECE = 1 << 20


def check_small_files(directory: Path, manifest: Manifest) -> None:
    """Raises IntegrityError naming the first file whose bytes are not those that were packed."""
    for file in manifest.files:
        found = file_checksum(directory / file.name)
        if found != file.crc32:
            raise IntegrityError(
                f"{directory / file.name}: {_mismatch(file, found)}",
                hint="it was damaged or edited: copy it again, or pack again",
            )


def _mismatch(file: AuxiliaryFile, found: int) -> str:
    return f"checksum mismatch ({found:08x}, {file.crc32:08x} by {MANIFEST_NAME})"


def file_checksum(path: Path) -> int:
    """The CRC32 of a regular file, read in small pieces. Raises EnvironmentError_ if it cannot be read."""
    checksum = 0
    try:
        with open_regular(path) as file:
            while piece := file.read(_PIECE):
                checksum = crc32(piece, checksum)
    except OSError as error:
        raise EnvironmentError_(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
    return checksum
