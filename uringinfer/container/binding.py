"""Binding the formats of a container's parts to the codebooks that codebooks.bin has for them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from uringinfer.container.checksum import crc32
from uringinfer.container.codebooks import CODEBOOKS_NAME, Floats, codebook_names, expert_codebook
from uringinfer.container.container import Container
from uringinfer.container.manifest import Manifest, TensorPart
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.kernels.vq_formats import CODEBOOK_SHAPE


def bind_codebooks(container: Container) -> Container:
    """The same container, the formats of its parts bound to the codebooks that they share: its weights can be
    multiplied.

    Raises IntegrityError if the file is not what was packed, EnvironmentError_ if it cannot be read.
    """
    manifest = container.manifest
    names = codebook_names(manifest.segments, manifest.banks)
    if not names:
        return container
    codebooks = dict(zip(names, _read(container.path, manifest, len(names)), strict=True))

    def bound(part: TensorPart, name: str) -> TensorPart:
        form = part.format
        return part if form.bind is None else replace(part, format=form.bound_to(codebooks[name]))

    segments = (
        replace(segment, parts=tuple(bound(part, part.name) for part in segment.parts))
        for segment in manifest.segments
    )
    banks = (
        replace(bank, parts=tuple(bound(part, expert_codebook(bank.layer, part.name)) for part in bank.parts))
        for bank in manifest.banks
    )
    return Container(container.path, replace(manifest, segments=tuple(segments), banks=tuple(banks)))


def _read(directory: Path, manifest: Manifest, count: int) -> Floats:
    """The codebooks of the container, float32 [count, 3, 256, 8]."""
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
    return data.view(np.float16).astype(np.float32).reshape(count, *CODEBOOK_SHAPE)
