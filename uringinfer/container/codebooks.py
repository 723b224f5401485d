"""codebooks.bin: the centroids that vector-quantised matrices share, one codebook for each layer and kind.

What lies where follows from the parts that need codebooks, in the manifest's order: the trunk's tensors, then
the parts of each bank, which all experts of the layer share. A codebook is float16 [stages, 256, 8],
4096 bytes a stage, and the next one begins where it ends. The file is one of the manifest's `files`, with its
size and CRC32.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.checksum import crc32
from uringinfer.container.manifest import Bank, Manifest, Segment
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.kernels.formats import FORMATS

Floats = NDArray[np.float32]

CODEBOOKS_NAME = "codebooks.bin"
STAGE_BYTES = 2 * 256 * 8
"""Of one stage on disk; in memory, as float32, it takes twice as many."""


def expert_codebook(layer: int, part: str) -> str:
    """The name of the codebook that a part of all experts of a layer shares."""
    return f"layers.{layer}.experts.*.{part}"


def codebook_stages(segments: Sequence[Segment], banks: Sequence[Bank]) -> dict[str, int]:
    """Every codebook that these parts need and its stages, in the order of the file. Those of the trunk are
    named like their tensors."""
    trunk = [(part.name, part.format) for segment in segments for part in segment.parts]
    experts = [(expert_codebook(bank.layer, part.name), part.format) for bank in banks for part in bank.parts]
    return {name: FORMATS[form].stages for name, form in (*trunk, *experts) if FORMATS[form].stages}


def check_codebooks(manifest: Manifest) -> None:
    """Raises IntegrityError unless the manifest lists codebooks.bin, of the right size, exactly if its parts
    need codebooks."""
    needed = STAGE_BYTES * sum(codebook_stages(manifest.segments, manifest.banks).values())
    listed = next((file.nbytes for file in manifest.files if file.name == CODEBOOKS_NAME), 0)
    if listed != needed:
        raise IntegrityError(
            f"manifest.json: {CODEBOOKS_NAME} of {listed} bytes, {needed} by the formats of the tensors",
            hint="copy or pack the container again",
        )


def pack_codebooks(codebooks: Sequence[Floats]) -> bytes:
    """The content of codebooks.bin: float32 [stages, 256, 8] each, of values that float16 holds."""
    return b"".join(codebook.astype(np.float16).tobytes() for codebook in codebooks)


def read_codebooks(directory: Path, manifest: Manifest) -> Mapping[str, Floats]:
    """Every codebook of the container by name, float32 [stages, 256, 8].

    Raises IntegrityError if the file is not what was packed, EnvironmentError_ if it cannot be read.
    """
    stages = codebook_stages(manifest.segments, manifest.banks)
    if not stages:
        return {}
    path = directory / CODEBOOKS_NAME
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise EnvironmentError_(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
    expected = next(file.crc32 for file in manifest.files if file.name == CODEBOOKS_NAME)
    found = crc32(data, 0)
    if found != expected:
        raise IntegrityError(
            f"{path}: checksum mismatch ({found:08x} instead of {expected:08x})",
            hint="copy it again, or pack again",
        )
    values = data.view(np.float16).astype(np.float32).reshape(-1, 256, 8)
    ends = np.cumsum(list(stages.values()))
    return {
        name: np.ascontiguousarray(values[end - count : end])
        for (name, count), end in zip(stages.items(), ends, strict=True)
    }


def codebook_memory(manifest: Manifest) -> int:
    """Bytes of all codebooks in memory."""
    return 2 * STAGE_BYTES * sum(codebook_stages(manifest.segments, manifest.banks).values())
