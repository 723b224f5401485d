"""Whether a checkpoint's files are those that were published, by the digests that a download leaves behind.

A hub cache keeps each file as a blob under its digest, and a snapshot's names are links to blobs; a download
into a directory keeps the digest in `.cache/huggingface/download/NAME.metadata`. Large files go by SHA-256,
small ones by git's SHA-1 of a blob. Nothing is asked of any server.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.packing.gguf_files import part_paths
from uringinfer.storage.regular import open_regular

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

_PIECE = 4 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
_METADATA_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What checking found: `checked` files of `nbytes` bytes, `unknown` files without a known digest, a line
    for each of the `damaged`."""

    checked: int
    nbytes: int
    unknown: int
    damaged: tuple[str, ...]


def known_digests(path: Path) -> tuple[dict[Path, str], int]:
    """The digest of every file of the checkpoint `path`, a directory or a file or any part of one, that a
    download left; and of how many none is known."""
    if not path.exists():
        raise UsageError(f"{path} does not exist", hint="name a checkpoint directory or a GGUF file")
    files = part_paths(path) if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    known = {file: digest for file in files if (digest := _digest(file)) is not None}
    return known, len(files) - len(known)


def check_source(path: Path, progress: Progress | None = None) -> SourceReport:
    """Compares every file of a checkpoint with its digest, where one is known; a thread for each processor.

    Raises EnvironmentError_ for a file that cannot be read.
    """
    known, unknown = known_digests(path)
    sizes = {file: file.stat().st_size for file in known}
    total, done = sum(sizes.values()), 0
    damaged = []
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="digest") as pool:
        counts = dict.fromkeys(known, 0)
        running = {pool.submit(_compute, file, digest, counts) for file, digest in known.items()}
        while running:
            finished, running = wait(running, 0.1, FIRST_COMPLETED)
            damaged += [line for future in finished if (line := future.result()) is not None]
            if progress is not None and sum(counts.values()) > done:
                done = sum(counts.values())
                progress(done, total)
    return SourceReport(len(known), total, unknown, tuple(sorted(damaged)))


def require_source(path: Path, progress: Progress | None = None) -> SourceReport:
    """The same; raises IntegrityError if a file is damaged, UsageError if no digest is known of any."""
    report = check_source(path, progress)
    if report.damaged:
        more = f" and {len(report.damaged) - 1} more" if len(report.damaged) > 1 else ""
        raise IntegrityError(f"{report.damaged[0]}{more}", hint="delete what is damaged, download it again")
    if not report.checked:
        raise UsageError(
            f"{path}: no file's digest is known, so the checkpoint cannot be checked",
            hint="checkpoints in a hub cache or from 'hf download --local-dir' have digests",
        )
    return report


def _digest(file: Path) -> str | None:
    """What the file's bytes should have: SHA-256, or git's SHA-1 of a blob."""
    if file.is_symlink():
        blob = Path(os.path.realpath(file))
        if blob.parent.name == "blobs" and _DIGEST.fullmatch(blob.name):
            return blob.name
    metadata = file.parent / ".cache" / "huggingface" / "download" / f"{file.name}.metadata"
    try:
        with open_regular(metadata) as opened:
            lines = opened.read(_METADATA_BYTES).decode("ascii", "replace").splitlines()
    except (OSError, IntegrityError):
        return None
    digest = lines[1].strip('"') if len(lines) > 1 else ""
    return digest if _DIGEST.fullmatch(digest) else None


def _compute(file: Path, digest: str, counts: dict[Path, int]) -> str | None:
    """A line if the file has another digest; counts the bytes done."""
    is_sha256 = len(digest) == 64
    try:
        with open_regular(file) as opened:
            nbytes = os.fstat(opened.fileno()).st_size
            state = hashlib.sha256() if is_sha256 else hashlib.sha1(f"blob {nbytes}\0".encode())
            for piece in _pieces(opened.fileno()):
                state.update(piece)
                counts[file] += len(piece)
    except OSError as error:
        raise EnvironmentError_(f"cannot read {file}: {os.strerror(error.errno or 0)}") from error
    if state.hexdigest() == digest:
        return None
    kind = "SHA-256" if is_sha256 else "git's SHA-1"
    return f"{file}: damaged: its {kind} is {state.hexdigest()}, {digest} was published"


def _pieces(fd: int) -> Iterator[memoryview]:
    buffer = bytearray(_PIECE)
    view = memoryview(buffer)
    while count := os.readv(fd, [buffer]):
        yield view[:count]
