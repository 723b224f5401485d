"""Whether a container's bytes are what they were when it was packed: every CRC32, at the drive's speed.

One thread keeps reads in flight through a ring of small buffers, others compute checksums of what has
arrived; the checksums of a segment's pieces are combined. Memory is the ring's, whatever the model's size.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from uringinfer.container.checksum import PROVIDER, crc32, crc32_combine
from uringinfer.container.container import Container
from uringinfer.container.manifest import MANIFEST_NAME
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import StorageFile, open_file
from uringinfer.storage.filesystem import evict
from uringinfer.storage.reader import Bytes, Reader, ReaderKind, ReadRequest, Ticket, open_reader
from uringinfer.storage.regular import read_regular

Progress = Callable[[int, int], None]
"""progress(done, total), in bytes; called from the thread that called `verify`."""

PIECE_BYTES = 4 << 20
RING_PIECES = 16


@dataclass(frozen=True, slots=True)
class Target:
    """A run of bytes with a checksum; `name` says what it is, for a person."""

    name: str
    path: Path
    offset: int
    nbytes: int
    crc32: int


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What `verify` found. `damaged` has one line for each damaged segment, record or file, `unfit` one for
    each tensor that is not what the config says."""

    path: str
    nbytes: int
    targets: int
    damaged: tuple[str, ...]
    seconds: float
    reader: str
    direct: bool
    checksum_library: str
    notes: tuple[str, ...]
    unfit: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.damaged and not self.unfit

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": self.ok, **asdict(self)}


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a target on its way through a buffer of the ring."""

    target: int
    nbytes: int
    slot: int


@dataclass(slots=True)
class _Result:
    crc32: int = 0
    failures: list[str] = field(default_factory=list)


def verify(
    path: Path | str,
    *,
    workers: int | None = None,
    reader_kind: ReaderKind = "auto",
    progress: Progress | None = None,
) -> VerifyReport:
    """Checks every segment, expert record and auxiliary file of the container `path` against its CRC32.

    `workers` threads compute checksums (default: one for each processor). Damage is reported, not raised;
    IntegrityError is raised if the structure is wrong: the manifest itself, a missing file, a wrong size.
    """
    start = time.monotonic()
    container = Container.open(path)
    small, large = _file_targets(container), [*_segment_targets(container), *_record_targets(container)]
    total = sum(target.nbytes for target in (*small, *large))
    damaged = [line for target in small if (line := _check_file(target))]
    done = sum(target.nbytes for target in small)
    files = {name: open_file(name) for name in dict.fromkeys(target.path for target in large)}
    try:
        with Arena(PIECE_BYTES * RING_PIECES, populate=False) as arena:
            # nothing is registered: pinning the buffers first takes longer than it saves on one pass
            reader = open_reader(reader_kind)
            try:
                check = _StreamedCheck(large, files, reader, arena, workers or os.cpu_count() or 1)
                damaged += check.run(lambda count: progress and progress(done + count, total))
                repeated = check.notes
            finally:
                reader.close()
    finally:
        for file in files.values():
            file.close()
    return VerifyReport(
        path=str(path),
        nbytes=total,
        targets=len(small) + len(large),
        damaged=tuple(damaged),
        seconds=time.monotonic() - start,
        reader=reader.name,
        direct=all(file.direct.is_direct for file in files.values()),
        checksum_library=PROVIDER,
        notes=(*repeated, *reader.notes, *_direct_notes(files)),
    )


def _segment_targets(container: Container) -> Iterator[Target]:
    trunk = container.trunk_path
    for segment in container.segments:
        name = f"segment {segment.name} of {trunk.name} at offset {segment.offset}"
        yield Target(name, trunk, segment.offset, segment.nbytes, segment.crc32)


def _record_targets(container: Container) -> Iterator[Target]:
    is_spread = container.manifest.sharding is not None
    for bank in container.banks.values():
        paths = container.bank_paths(bank)
        for expert, crc in enumerate(bank.crc32):
            drive, offset = container.record_place(bank, expert)
            name = f"expert {expert} of layer {bank.layer}"
            if is_spread:  # which drive to look at is not to be guessed from the number
                name += f" in {paths[drive]} at offset {offset}"
            yield Target(name, paths[drive], offset, bank.record_bytes, crc)


def _file_targets(container: Container) -> list[Target]:
    return [
        Target(file.name, container.path / file.name, 0, file.nbytes, file.crc32)
        for file in container.manifest.files
    ]


def _mismatch(target: Target, actual: int) -> str | None:
    """The line that says so, if the checksum is not the target's."""
    if actual == target.crc32:
        return None
    return f"{target.name}: checksum mismatch ({actual:08x}, {target.crc32:08x} by {MANIFEST_NAME})"


def _check_file(target: Target) -> str | None:
    """Checks a small file, which may have any size."""
    try:
        return _mismatch(target, crc32(read_regular(target.path)))
    except OSError as error:
        raise EnvironmentError_(f"cannot read {target.path}: {os.strerror(error.errno or 0)}") from error


def _direct_notes(files: dict[Path, StorageFile]) -> list[str]:
    reasons = {file.direct.reason for file in files.values() if not file.direct.is_direct}
    return [f"read through the page cache: {reason}" for reason in sorted(reasons)]


class _StreamedCheck:
    """Streams `targets` through the ring. A piece's buffer is free again once its checksum is known."""

    def __init__(
        self,
        targets: list[Target],
        files: dict[Path, StorageFile],
        reader: Reader,
        arena: Arena,
        workers: int,
    ) -> None:
        self._targets = targets
        self._files = files
        self._reader = reader
        self._buffers = [arena.carve(PIECE_BYTES) for _ in range(RING_PIECES)]
        self._free = list(range(RING_PIECES))
        self._reading: deque[tuple[_Piece, Ticket]] = deque()
        self._hashing: deque[tuple[_Piece, Future[int]]] = deque()
        self._results = [_Result() for _ in targets]
        self.notes: list[str] = []
        """What was read damaged and was right when it was read again."""
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="crc32")

    def run(self, count: Callable[[int], object]) -> list[str]:
        """Checks everything, calling `count` with the bytes done; a line for each damaged target."""
        pieces = self._pieces()
        done, more = 0, True
        try:
            while more or self._reading or self._hashing:
                while more and self._free:
                    more = self._submit_next(pieces)
                if self._reading:
                    self._hand_over(*self._reading.popleft())
                # in order, and all that are ready; wait for one only if there is nothing else to do
                while self._hashing and (self._hashing[0][1].done() or not self._reading):
                    done += self._collect(*self._hashing.popleft())
                    count(done)
        finally:
            self._pool.shutdown()
        return [line for i, target in enumerate(self._targets) if (line := self._verdict(i, target))]

    def _pieces(self) -> Iterator[tuple[int, int, int]]:
        """(target, offset, nbytes) of every piece, in order."""
        for index, target in enumerate(self._targets):
            for start in range(0, target.nbytes, PIECE_BYTES):
                yield index, target.offset + start, min(PIECE_BYTES, target.nbytes - start)

    def _submit_next(self, pieces: Iterator[tuple[int, int, int]]) -> bool:
        """Starts the next read; False if there is none left."""
        following = next(pieces, None)
        if following is None:
            return False
        index, offset, nbytes = following
        piece = _Piece(index, nbytes, self._free.pop())
        request = ReadRequest(self._files[self._targets[index].path], offset, self._view(piece))
        self._reading.append((piece, self._reader.submit([request])))
        return True

    def _view(self, piece: _Piece) -> Bytes:
        return self._buffers[piece.slot][: piece.nbytes]

    def _hand_over(self, piece: _Piece, ticket: Ticket) -> None:
        """Waits for a read and gives its bytes to a worker."""
        try:
            self._reader.wait(ticket)
        except IntegrityError as error:
            self._results[piece.target].failures.append(error.message)
        self._hashing.append((piece, self._pool.submit(crc32, self._view(piece))))

    def _collect(self, piece: _Piece, checksum: Future[int]) -> int:
        """Takes a piece's checksum and frees its buffer; returns its bytes."""
        result = self._results[piece.target]
        result.crc32 = crc32_combine(result.crc32, checksum.result(), piece.nbytes)
        self._free.append(piece.slot)
        return piece.nbytes

    def _verdict(self, index: int, target: Target) -> str | None:
        result = self._results[index]
        if result.failures:
            return f"{target.name}: unreadable: {result.failures[0]}"
        line = _mismatch(target, result.crc32)
        if line is None:
            return None
        try:
            second = self._read_again(target)
        except IntegrityError as error:
            return f"{line}; then unreadable: {error.message}"
        if second == target.crc32:
            self.notes.append(f"{target.name} was read damaged and was right when it was read again")
            return None
        same = second == result.crc32
        return f"{line}; a second read gave {'the same bytes' if same else f'other bytes ({second:08x})'}"

    def _read_again(self, target: Target) -> int:
        """The checksum of the target by a second read, past the page cache's memory of the first."""
        file, checksum = self._files[target.path], 0
        if not file.direct.is_direct:
            evict(file.fd, target.offset, target.nbytes)
        for start in range(0, target.nbytes, PIECE_BYTES):
            piece = self._buffers[0][: min(PIECE_BYTES, target.nbytes - start)]
            self._reader.wait(self._reader.submit([ReadRequest(file, target.offset + start, piece)]))
            checksum = crc32(piece, checksum)
        return checksum
