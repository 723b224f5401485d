"""The manifest of a layout, once its blocks are written: checksums, and what was lost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from uringinfer.container.manifest import Manifest
from uringinfer.packing.error_report import summarise_errors
from uringinfer.packing.journal import Finished
from uringinfer.packing.layout import Layout


def with_checksum(manifest: Manifest, name: str, checksum: int) -> Manifest:
    """The manifest with the CRC32 of the file `name`."""
    files = (replace(file, crc32=checksum) if file.name == name else file for file in manifest.files)
    return replace(manifest, files=tuple(files))


def with_results(layout: Layout, blocks: Sequence[Finished]) -> Manifest:
    """The manifest with the CRC32 of every block in its place, and what was lost in all of them."""
    remaining = iter(block.crc32 for block in blocks)
    errors = summarise_errors(part for block in blocks for part in block.squares)
    segments = tuple(replace(segment, crc32=next(remaining)) for segment in layout.manifest.segments)
    banks = tuple(
        replace(bank, crc32=tuple(itertools.islice(remaining, bank.num_experts)))
        for bank in layout.manifest.banks
    )
    return replace(layout.manifest, segments=segments, banks=banks, errors=errors)
