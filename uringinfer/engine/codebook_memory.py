"""The memory that vector-quantised weights take beside their packed bytes."""

from __future__ import annotations

from uringinfer.container.codebooks import codebook_memory
from uringinfer.container.manifest import Manifest
from uringinfer.kernels import Kernels


def codebook_bytes(manifest: Manifest, kernels: Kernels, chunk: int) -> int:
    """Bytes of all codebooks, of the tables of one product with `chunk` tokens and of those that
    experts share for one token; 0 for a container without such weights."""
    parts = [part for segment in manifest.segments for part in segment.parts]
    parts += [part for bank in manifest.banks for part in bank.parts]
    shapes = {(part.format, part.cols) for part in parts}
    tables = (kernels.table_bytes(*shape, chunk) + 2 * kernels.table_bytes(*shape) for shape in shapes)
    return codebook_memory(manifest) + max(tables, default=0)
