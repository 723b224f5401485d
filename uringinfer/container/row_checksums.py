"""row_checksums.bin: CRC32s of the segments whose rows are read one by one, one for each 4096 bytes.

A row cannot be checked against the CRC32 of a whole segment without reading all of it. So the segments of
embedding tables, or of the head that serves as one, have a checksum for each block as well: 0.1 % of their
bytes. The file holds little-endian u32, block after block, segment after segment in the manifest's order. It
is one of the manifest's `files`, with its size and CRC32.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.checksum import Bytes, crc32
from uringinfer.container.manifest import ALIGNMENT, Manifest, Segment
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.storage.regular import read_regular

ROW_CHECKSUMS_NAME = "row_checksums.bin"
BLOCK_BYTES = ALIGNMENT
"""What one checksum covers."""

_ENTRY_BYTES = 4

Checksums = NDArray[np.uint32]


def row_segments(segments: Sequence[Segment]) -> tuple[int, ...]:
    """The numbers of the segments whose rows are read one by one: those of the tables; without a table apart,
    those of the last tensor, the head, which is one."""
    tables = tuple(number for number, segment in enumerate(segments) if not segment.streamed)
    if tables or not segments:
        return tables
    head = segments[-1].parts[-1].name
    return tuple(
        number for number, segment in enumerate(segments) if any(part.name == head for part in segment.parts)
    )


def row_checksum_bytes(segments: Sequence[Segment]) -> int:
    """Bytes of the file, and of the checksums in memory."""
    blocks = sum(segments[number].nbytes // BLOCK_BYTES for number in row_segments(segments))
    return blocks * _ENTRY_BYTES


def block_checksums(data: Bytes) -> Checksums:
    """The checksum of each block of `data`, whole blocks."""
    blocks = range(0, data.size, BLOCK_BYTES)
    return np.array([crc32(data[start : start + BLOCK_BYTES]) for start in blocks], "<u4")


def check_row_checksums(manifest: Manifest) -> None:
    """Raises IntegrityError unless the manifest lists row_checksums.bin, of the right size."""
    needed = row_checksum_bytes(manifest.segments)
    listed = next((file.nbytes for file in manifest.files if file.name == ROW_CHECKSUMS_NAME), 0)
    if listed != needed:
        raise IntegrityError(
            f"manifest.json: {ROW_CHECKSUMS_NAME} of {listed} bytes, {needed} by the segments",
            hint="copy or pack the container again",
        )


def read_row_checksums(directory: Path, manifest: Manifest) -> Mapping[int, Checksums]:
    """The checksums of each segment whose rows are read one by one, by the segment's number.

    Raises IntegrityError if the file is not what was packed, EnvironmentError_ if it cannot be read.
    """
    path = directory / ROW_CHECKSUMS_NAME
    expected = next((file.crc32 for file in manifest.files if file.name == ROW_CHECKSUMS_NAME), None)
    if expected is None:
        return {}
    try:
        data = np.frombuffer(read_regular(path), np.uint8)
    except OSError as error:
        raise EnvironmentError_(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
    found = crc32(data)
    if found != expected or data.size != row_checksum_bytes(manifest.segments):
        raise IntegrityError(
            f"{path}: checksum mismatch ({found:08x} instead of {expected:08x})",
            hint="copy it again, or pack again",
        )
    numbers = row_segments(manifest.segments)
    if not numbers:
        return {}
    ends = np.cumsum([manifest.segments[number].nbytes // BLOCK_BYTES for number in numbers])
    return dict(zip(numbers, np.split(data.view("<u4"), ends[:-1]), strict=True))
