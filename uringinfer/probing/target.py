"""What a probe reads: a container's largest file, a file, a block device, or a test file in a directory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from uringinfer.container.container import Container
from uringinfer.container.manifest import MANIFEST_NAME
from uringinfer.container.summary import summarise
from uringinfer.errors import UsageError
from uringinfer.models import model_from_config
from uringinfer.probing.cells import Mode
from uringinfer.storage.direct import DirectMode, StorageFile, open_file
from uringinfer.storage.probe_file import random_file
from uringinfer.units import format_size

MIN_FILE_BYTES = 1 << 20
_TEST_FILE_BYTES: dict[Mode, int] = {"quick": 1 << 30, "normal": 2 << 30, "full": 4 << 30}


@dataclass(frozen=True, slots=True)
class ModelReads:
    """How a model is read: the sizes of its records and streamed segments, and bytes per token, all cold."""

    record_bytes: int
    segment_bytes: int
    bytes_per_token: int


@dataclass(frozen=True, slots=True)
class Target:
    """`nbytes` bytes of `file` are read. `is_test_file` if the probe wrote it."""

    file: StorageFile
    nbytes: int
    is_test_file: bool
    model: ModelReads | None

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Sizes that the model is read in, as far as there is one."""
        if self.model is None:
            return ()
        return tuple(size for size in (self.model.record_bytes, self.model.segment_bytes) if size)


@contextlib.contextmanager
def open_target(
    path: Path,
    mode: Mode,
    size: int | None = None,
    *,
    require_direct: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[Target]:
    """Opens what is to be read at `path`; `size` bounds it.

    Raises UsageError if there is nothing, or too little to read.
    """
    direct: DirectMode = "require" if require_direct else "auto"
    model = None
    if (path / MANIFEST_NAME).is_file():
        container = Container.open(path)
        model = _model_reads(container)
        file = open_file(_largest_file(path), direct=direct)
    elif path.is_dir():
        nbytes = max(size or _TEST_FILE_BYTES[mode], MIN_FILE_BYTES)
        file = random_file(path, nbytes, direct=direct, progress=progress and _writing(progress))
    else:
        file = open_file(path, direct=direct)
    with file:
        nbytes = min(size or file.nbytes, file.nbytes)
        if nbytes < MIN_FILE_BYTES:
            raise UsageError(
                f"{file.path}: {format_size(nbytes)} are too little to measure a drive",
                hint=f"{format_size(MIN_FILE_BYTES)} at least, or a directory to write a test file to",
            )
        yield Target(file, nbytes, path.is_dir() and model is None, model)


def _writing(progress: Callable[[str, int, int], None]) -> Callable[[int, int], None]:
    """`progress`, told of bytes written, in MiB: what comes after is counted in cells."""
    return lambda done, total: progress("writing a test file, MiB", done >> 20, total >> 20)


def _model_reads(container: Container) -> ModelReads:
    experts = model_from_config(container.manifest.config).experts_per_token
    summary = summarise(container, experts)
    return ModelReads(
        record_bytes=summary.largest_record_bytes,
        segment_bytes=summary.largest_segment_bytes,
        bytes_per_token=summary.bytes_per_token,
    )


def _largest_file(path: Path) -> Path:
    return max((file for file in path.glob("*.bin") if file.is_file()), key=lambda file: file.stat().st_size)
