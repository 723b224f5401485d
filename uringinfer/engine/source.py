"""Where the container is: MODEL itself, or what a checkpoint was packed into.

A checkpoint (a Hugging Face directory or a GGUF file) is packed once into a cache directory, under a name
made of its own and a digest of its files' names, sizes and times: a changed checkpoint is packed anew, and so
is one that an older version packed in another format.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from uringinfer.container.manifest import FORMAT_VERSION
from uringinfer.environment import cache_directory
from uringinfer.errors import UsageError
from uringinfer.packing.gguf_files import SUFFIX, holds_gguf, part_paths
from uringinfer.packing.packer import pack
from uringinfer.units import format_size

MANIFEST = "manifest.json"
_WEIGHTS = (".safetensors", SUFFIX)


def find_container(
    path: Path,
    pack_dir: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    announce: Callable[[str], None] | None = None,
) -> Path:
    """The container of the model at `path`, packed now if it is a checkpoint that was not packed before.

    Raises UsageError if there is no model at `path`, and what `pack` raises.
    """
    if (path / MANIFEST).is_file():
        return path
    files = _checkpoint_files(path)
    own = files[0] if files[0].suffix == SUFFIX else path  # whichever part was named
    target = (pack_dir or cache_directory()) / f"{Path(os.path.realpath(own)).stem}-{_digest(files)}.uring"
    if (target / MANIFEST).is_file():
        return target
    if announce is not None:
        nbytes = sum(file.stat().st_size for file in files)
        announce(f"packing {path} ({format_size(nbytes)}) once, into {target}")
    report = pack(path, target, progress=progress and (lambda done, total: progress("packing", done, total)))
    if announce is not None:
        for note in report.notes:
            announce(f"note: {note}")
    return target


def _checkpoint_files(path: Path) -> list[Path]:
    """The files that a checkpoint's weights and configuration are in. Raises UsageError if there is none,
    IntegrityError naming parts of a GGUF file that are not there."""
    if (path.is_file() and path.suffix == SUFFIX) or (path.is_dir() and holds_gguf(path)):
        return part_paths(path)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (*_WEIGHTS, ".json"))
        if any(file.suffix in _WEIGHTS for file in files):
            return files
    what = "is neither a container nor a checkpoint" if path.exists() else "does not exist"
    raise UsageError(
        f"{path} {what}",
        hint="give NAME.uring, a directory with safetensors files, or a GGUF file (any part of one)",
    )


def _digest(files: list[Path]) -> str:
    """16 hex digits that change when a file is replaced, and with the format of containers."""
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(f"{FORMAT_VERSION} {facts}".encode()).hexdigest()[:16]
