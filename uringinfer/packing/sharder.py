"""Spreads a container's experts over several drives, or brings them back.

Records are copied, each checked against its CRC32 on the way, into a directory on each drive; then a new
manifest replaces the old one, which is the commit; then the old copies are removed. Interrupted before the
commit, the container is as it was; run again, the copy starts anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from uringinfer.container import Bank, Container
from uringinfer.container.checksum import crc32
from uringinfer.container.manifest import MANIFEST_NAME
from uringinfer.container.sharding import MARKER_NAME, MAX_DRIVES, Sharding, marker
from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.packing.staging import check_space, write_synced
from uringinfer.packing.windows import Bytes, aligned_buffer, read_range
from uringinfer.packing.writer import BUFFER_BYTES, OutputFile
from uringinfer.storage.direct import StorageFile, open_file
from uringinfer.storage.directories import DirectoryLock
from uringinfer.storage.regular import sync_directory
from uringinfer.units import counted

Progress = Callable[[int, int], None]
"""progress(done, total), in bytes."""

PATTERN_SLOTS = 64
"""Weights are rounded to this many parts: a pattern no longer than this keeps every drive's share close."""


@dataclass(frozen=True, slots=True)
class DriveReport:
    """One drive of a sharded container; `share` is its part of all records."""

    path: str
    records: int
    nbytes: int
    share: float


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What `shard` did; no drives means that the records are back in the container. Sizes in bytes."""

    path: str
    records: int
    nbytes: int
    drives: tuple[DriveReport, ...]
    pattern: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def make_pattern(weights: Sequence[float]) -> tuple[int, ...]:
    """Which drive each record goes to, in turn, so that drive i gets a share of weights[i] / sum(weights).

    Equal weights give 0, 1, 2, ...; in general each step serves the drive that lags most behind its share.
    Raises UsageError for a weight that is not positive or too small to get anything.
    """
    if not weights or not all(weight > 0 for weight in weights):
        raise UsageError("a drive's weight must be positive")
    smallest = min(weights)
    whole = [round(weight / smallest, 6) for weight in weights]
    length = int(sum(whole)) if all(part.is_integer() for part in whole) else PATTERN_SLOTS
    length = min(max(length, len(weights)), PATTERN_SLOTS)
    total, given, pattern = sum(weights), [0] * len(weights), []
    for step in range(1, length + 1):
        lag = [weight / total * step - count for weight, count in zip(weights, given, strict=True)]
        drive = lag.index(max(lag))
        given[drive] += 1
        pattern.append(drive)
    if 0 in given:
        raise UsageError(
            f"drive {given.index(0) + 1} would get less than one record in {length}",
            hint="leave it out, or give it a larger weight",
        )
    return tuple(pattern)


def shard(
    path: Path | str,
    directories: Sequence[Path | str],
    *,
    weights: Sequence[float] | None = None,
    progress: Progress | None = None,
) -> ShardReport:
    """Moves the experts of the container `path` into a directory of their own inside each of `directories`,
    in proportion to `weights` (equal if None); no directories brings them back.

    Raises UsageError for a container without experts and for directories that are not there or stand twice,
    EnvironmentError_ if the space is not there or a drive refuses, IntegrityError naming a damaged record.
    """
    if not Container.open(path).banks:
        raise UsageError(f"{path} has no experts to spread")
    with DirectoryLock(Path(path), busy=f"another process is changing {path}"):
        container = Container.open(path)
        sharding = _plan(container, [Path(directory) for directory in directories], weights)
        if sharding != container.manifest.sharding:
            _Move(container, sharding).run(progress)
        if sharding is not None:
            _remove_banks(container)  # those that were moved, or that an interrupted run brought back
    return _report(container, sharding)


def _remove_banks(container: Container) -> None:
    """Deletes the banks in the directory of a container whose experts are on drives."""
    for bank in container.banks.values():
        (container.path / bank.file).unlink(missing_ok=True)


def _plan(
    container: Container, directories: Sequence[Path], weights: Sequence[float] | None
) -> Sharding | None:
    if not directories:
        return None
    if len(directories) > MAX_DRIVES:
        raise UsageError(f"{len(directories)} drives are more than {MAX_DRIVES}")
    if weights is not None and len(weights) != len(directories):
        raise UsageError(f"{counted(len(weights), 'weight')} for {counted(len(directories), 'drive')}")
    for directory in directories:
        if not directory.is_dir():
            raise UsageError(f"{directory} is no directory", hint="mount the drive, or make the directory")
    homes = [os.path.realpath(directory) for directory in directories]
    if len(set(homes)) != len(homes):
        raise UsageError("a drive stands twice", hint="name each directory once")
    pattern = make_pattern(weights or [1.0] * len(homes))
    unsharded = replace(container.manifest, sharding=None).to_json()
    key = hashlib.sha256(json.dumps([unsharded, homes, pattern]).encode()).hexdigest()[:16]
    name = Path(os.path.realpath(container.path)).name
    return Sharding(tuple(f"{home}/{name}.{key[:8]}.shard" for home in homes), pattern, key)


def _report(container: Container, sharding: Sharding | None) -> ShardReport:
    banks = container.manifest.banks
    records = sum(bank.num_experts for bank in banks)
    drives = []
    for number, path in enumerate(sharding.drives if sharding else ()):
        counts = [sharding.count(number, bank.num_experts) if sharding else 0 for bank in banks]
        nbytes = sum(count * bank.record_bytes for count, bank in zip(counts, banks, strict=True))
        drives.append(DriveReport(path, sum(counts), nbytes, sum(counts) / records))
    pattern = sharding.pattern if sharding else ()
    return ShardReport(str(container.path), records, container.bank_bytes, tuple(drives), pattern)


class _Move:
    """One run of `shard`: copies all records into new places, commits, removes the old ones."""

    def __init__(self, container: Container, sharding: Sharding | None) -> None:
        self._old = container
        self._sharding = sharding
        self._new = Container(container.path, replace(container.manifest, sharding=sharding))
        # the container's own directory is the target of bringing records back; drives get a new one each
        finals = [container.path] if sharding is None else [Path(drive) for drive in sharding.drives]
        self._targets = [(final, final.with_name(f"{final.name}.moving")) for final in finals]

    def run(self, progress: Progress | None) -> None:
        self._check_space()
        try:
            for _, partial in self._targets:
                shutil.rmtree(partial, ignore_errors=True)  # left by a run that was killed
                _make_directory(partial)
            self._copy(progress)
            self._publish()
        finally:
            for _, partial in self._targets:
                shutil.rmtree(partial, ignore_errors=True)
        self._remove_old()

    def _check_space(self) -> None:
        """All targets on one file system must fit there together."""
        needed: Counter[int] = Counter()
        for number, (_, partial) in enumerate(self._targets):
            device = partial.parent.stat().st_dev
            needed[device] += sum(
                self._count(number, bank) * bank.record_bytes for bank in self._new.banks.values()
            )
            check_space(partial, needed[device])

    def _count(self, drive: int, bank: Bank) -> int:
        return self._sharding.count(drive, bank.num_experts) if self._sharding else bank.num_experts

    def _copy(self, progress: Progress | None) -> None:
        """Copies bank after bank; all drives are written at the same time."""
        done, total = 0, self._new.bank_bytes
        with ThreadPoolExecutor(len(self._targets), thread_name_prefix="shard") as pool:
            for bank in self._new.banks.values():
                sources = [open_file(path) for path in self._old.bank_paths(bank)]
                try:
                    copies = [
                        pool.submit(self._copy_bank, bank, drive, sources)
                        for drive in range(len(self._targets))
                    ]
                    for copy in as_completed(copies):
                        done += copy.result()
                        if progress is not None:
                            progress(done, total)
                finally:
                    for source in sources:
                        source.close()

    def _copy_bank(self, bank: Bank, drive: int, sources: Sequence[StorageFile]) -> int:
        """Writes the records of `bank` that go to `drive`; returns their bytes."""
        buffer = aligned_buffer(BUFFER_BYTES)
        nbytes = self._count(drive, bank) * bank.record_bytes
        with OutputFile(self._targets[drive][1] / bank.file, nbytes) as file:
            for expert in range(bank.num_experts):
                target, offset = self._new.record_place(bank, expert)
                if target == drive:
                    source, place = self._old.record_place(bank, expert)
                    found = _copy_record(sources[source], place, file, offset, bank.record_bytes, buffer)
                    _check_record(bank, expert, found)
            file.sync()
        return nbytes

    def _publish(self) -> None:
        """Gives the new files their final names, then replaces the manifest: the commit."""
        for number, (final, partial) in enumerate(self._targets):
            if self._sharding is None:
                for bank in self._new.banks.values():
                    (partial / bank.file).rename(final / bank.file)
            else:
                document = json.dumps(marker(self._sharding, number)) + "\n"
                write_synced(partial / MARKER_NAME, document.encode())
                sync_directory(partial)
                shutil.rmtree(final, ignore_errors=True)  # left by a run that stopped before its commit
                partial.rename(final)
            sync_directory(final.parent)
        write_synced(self._new.path / MANIFEST_NAME, self._new.manifest.to_json().encode())

    def _remove_old(self) -> None:
        if self._old.manifest.sharding is not None:
            for drive in map(Path, self._old.manifest.sharding.drives):
                for name in (MARKER_NAME, *(bank.file for bank in self._old.banks.values())):
                    (drive / name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # somebody put something else there
                    drive.rmdir()


def _copy_record(
    source: StorageFile, place: int, target: OutputFile, offset: int, nbytes: int, buffer: Bytes
) -> int:
    """Copies one record through `buffer`; returns its CRC32."""
    checksum = 0
    for start in range(0, nbytes, len(buffer)):
        piece = buffer[: min(len(buffer), nbytes - start)]
        read_range(source, place + start, piece)
        checksum = crc32(piece, checksum)
        target.write(offset + start, piece)
    return checksum


def _check_record(bank: Bank, expert: int, found: int) -> None:
    if found != bank.crc32[expert]:
        raise IntegrityError(
            f"expert {expert} of layer {bank.layer}: checksum mismatch"
            f" ({found:08x}, {bank.crc32[expert]:08x} by {MANIFEST_NAME})",
            hint="nothing was moved; pack the checkpoint again",
        )


def _make_directory(path: Path) -> None:
    try:
        path.mkdir()
    except OSError as error:
        raise EnvironmentError_(f"cannot write to {path.parent}: {os.strerror(error.errno or 0)}") from error
