"""Whether a container is whole: every checksum, and every tensor against the config."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from uringinfer.container import verifier
from uringinfer.container.container import Container
from uringinfer.container.verifier import Progress, VerifyReport
from uringinfer.errors import UnsupportedModelError
from uringinfer.models import model_from_config
from uringinfer.models.container_fit import unfit
from uringinfer.storage.reader import ReaderKind


def verify(
    path: Path | str,
    *,
    workers: int | None = None,
    reader_kind: ReaderKind = "auto",
    progress: Progress | None = None,
) -> VerifyReport:
    """Checks every segment, expert record and auxiliary file of the container `path` against its CRC32, and
    every tensor against what the config says of it.

    `workers` threads compute checksums (default: one for each processor). Damage is reported, not raised;
    IntegrityError is raised if the structure is wrong: the manifest itself, a missing file, a wrong size.
    """
    report = verifier.verify(path, workers=workers, reader_kind=reader_kind, progress=progress)
    manifest = Container.open(path).manifest
    try:
        lines = tuple(unfit(model_from_config(manifest.config), manifest))
    except UnsupportedModelError as error:
        lines = (f"config: {error.message}",)
    return replace(report, unfit=lines)
