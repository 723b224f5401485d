"""codebooks.bin: the centroids that vector-quantised matrices share, one codebook for each layer and kind.

What lies where follows from the parts that need codebooks, in the manifest's order: the trunk's tensors, then
the parts of each bank, which all experts of the layer share. A codebook is float16 [3, 256, 8], and
the next one begins where it ends. The file is one of the manifest's `files`, with its
size and CRC32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.manifest import Bank, Manifest, Segment
from uringinfer.errors import IntegrityError
from uringinfer.kernels.vq_formats import CODEBOOK_SHAPE

Floats = NDArray[np.float32]

CODEBOOKS_NAME = "codebooks.bin"
CODEBOOK_BYTES = 2 * math.prod(CODEBOOK_SHAPE)
"""Of one codebook on disk; in memory, as float32, it takes twice as many."""


def expert_codebook(layer: int, part: str) -> str:
    """The name of the codebook that a part of all experts of a layer shares."""
    return f"layers.{layer}.experts.*.{part}"


def codebook_names(segments: Sequence[Segment], banks: Sequence[Bank]) -> list[str]:
    """Every codebook that these parts need, in the order of the file. Those of the trunk are named like their
    tensors."""
    trunk = [part.name for segment in segments for part in segment.parts if part.format.bind]
    experts = [
        expert_codebook(bank.layer, part.name) for bank in banks for part in bank.parts if part.format.bind
    ]
    return list(dict.fromkeys((*trunk, *experts)))


def check_codebooks(manifest: Manifest) -> None:
    """Raises IntegrityError unless the manifest lists codebooks.bin, of the right size, exactly if its parts
    need codebooks."""
    needed = CODEBOOK_BYTES * len(codebook_names(manifest.segments, manifest.banks))
    listed = next((file.nbytes for file in manifest.files if file.name == CODEBOOKS_NAME), 0)
    if listed != needed:
        raise IntegrityError(
            f"manifest.json: {CODEBOOKS_NAME} of {listed} bytes, {needed} by the formats of the tensors",
            hint="copy or pack the container again",
        )


def pack_codebooks(codebooks: Sequence[Floats]) -> bytes:
    """The content of codebooks.bin: float32 [3, 256, 8] each, of values that float16 holds."""
    return b"".join(codebook.astype(np.float16).tobytes() for codebook in codebooks)


def codebook_memory(manifest: Manifest) -> int:
    """Bytes of all codebooks in memory."""
    return 2 * CODEBOOK_BYTES * len(codebook_names(manifest.segments, manifest.banks))
