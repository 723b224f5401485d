"""Makes the checksums of rows: reads back what was written, so that they and the segment's CRC32 agree."""

from __future__ import annotations

from pathlib import Path

from uringinfer.container.checksum import crc32
from uringinfer.container.manifest import Manifest, Segment
from uringinfer.container.row_checksums import block_checksums, row_segments
from uringinfer.errors import EnvironmentError_
from uringinfer.packing.windows import Bytes, aligned_buffer, read_range
from uringinfer.storage.direct import StorageFile, open_file

_BUFFER_BYTES = 4 << 20


def make_row_checksums(trunk: Path, manifest: Manifest) -> bytes:
    """The content of row_checksums.bin for the trunk's file, by the manifest with its checksums.

    Raises EnvironmentError_ if the drive does not give back what was written.
    """
    buffer = aligned_buffer(_BUFFER_BYTES)
    segments = [manifest.segments[number] for number in row_segments(manifest.segments)]
    if not segments:
        return b""
    with open_file(trunk) as file:
        return b"".join(_of_segment(file, segment, buffer) for segment in segments)


def _of_segment(file: StorageFile, segment: Segment, buffer: Bytes) -> bytes:
    checksum, blocks = 0, []
    for start in range(0, segment.nbytes, _BUFFER_BYTES):
        piece = buffer[: min(_BUFFER_BYTES, segment.nbytes - start)]
        read_range(file, segment.offset + start, piece)
        checksum = crc32(piece, checksum)
        blocks.append(block_checksums(piece).tobytes())
    if checksum != segment.crc32:
        raise EnvironmentError_(
            f"{file.path}: segment {segment.name} at offset {segment.offset} reads back as other bytes than"
            f" were written ({checksum:08x} instead of {segment.crc32:08x})",
            hint="look at the kernel's log (dmesg) and at the drive's health (smartctl), then pack again",
        )
    return b"".join(blocks)
