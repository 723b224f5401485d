"""Rows of an embedding table, from pinned memory or read on demand.

A table is used a few rows at a time, so no pass streams it. A row that is not in memory is read in aligned
windows around its bytes (one for each section of the format) into a small staging buffer; all rows of a call
that fit there go to the reader in one batch, ahead of the trunk's own reads.

A segment's CRC32 covers all of its bytes, so rows read on demand are checked by blocks of 4096 bytes, whose
checksums the container has for such segments (`container.row_checksums`).
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.manifest import ALIGNMENT, Segment
from uringinfer.container.row_checksums import BLOCK_BYTES, Checksums
from uringinfer.errors import ResidencyError, UsageError
from uringinfer.kernels.formats import Weight, decode_rows
from uringinfer.residency.checker import ReadChecker
from uringinfer.residency.order import Piece, Tensor, tensors_in_order
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.reader import Bytes, Priority, Reader, ReadRequest

Floats = NDArray[np.float32]

ROWS_AT_ONCE = 32
"""Rows that the staging buffer holds: enough to keep a drive's queue full, little beside a weight."""


@dataclass(frozen=True, slots=True)
class _Window:
    """File bytes [offset, offset + nbytes), aligned; the wanted bytes are [start, stop) of them."""

    offset: int
    nbytes: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Block:
    """The fewest rows around one wanted row that decode on their own: rows [first, first + rows)."""

    row: int
    first: int
    rows: int
    windows: tuple[_Window, ...]

    @property
    def nbytes(self) -> int:
        return sum(window.nbytes for window in self.windows)


def _block(piece: Piece, row: int, file_offset: int, align: int) -> _Block:
    """Where `row` (counted in the piece) lies in the file, if the piece starts at `file_offset`."""
    form = piece.format
    rows = piece.row_stop - piece.row_start
    first = row // form.row_granularity * form.row_granularity
    stop = min(rows, first + form.row_granularity)
    starts = form.sections(first, piece.cols) if first else (0,) * len(form.sections(stop, piece.cols))
    windows = []
    for section, start, end in zip(
        form.offsets(rows, piece.cols), starts, form.sections(stop, piece.cols), strict=False
    ):
        begin, finish = file_offset + section + start, file_offset + section + end
        low, high = begin // align * align, -(-finish // align) * align
        windows.append(_Window(low, high - low, begin - low, finish - low))
    return _Block(row, first, stop - first, tuple(windows))


@dataclass(frozen=True, slots=True)
class RowSizes:
    """What looking rows up takes, in bytes: the most that is read for one row, and the staging buffer."""

    row_bytes: int
    staging_bytes: int


def row_sizes(segments: Sequence[Segment]) -> RowSizes:
    """The sizes for a container's segments. Without a table apart, the last tensor, the head, is one."""
    tensors = tensors_in_order(segments)
    tables = [tensor for tensor in tensors if not segments[tensor.pieces[0].segment].streamed]
    most = 0
    for table in tables or tensors[-1:]:
        for piece in table.pieces:
            # a row may begin and end anywhere in a block, and lies in one more than its bytes fill
            windows = _block(piece, 0, 0, ALIGNMENT).windows
            most = max(most, sum(window.nbytes + ALIGNMENT for window in windows))
    return RowSizes(most, ROWS_AT_ONCE * most)


class EmbeddingRows:
    """Looks rows up in the tables of one trunk.

    `pinned(segment)` gives the bytes of a segment that is in memory, else None. `file_offset(segment)` is
    where a segment starts in `file`. `staging` is aligned as the file asks. With a `checker`, `checksums` has
    those of the blocks of every segment, by its number, that may be read here.
    """

    def __init__(
        self,
        reader: Reader,
        file: StorageFile,
        staging: Bytes,
        *,
        pinned: Callable[[int], Bytes | None],
        file_offset: Callable[[int], int],
        checker: ReadChecker | None = None,
        checksums: Mapping[int, Checksums] | None = None,
    ) -> None:
        self._reader = reader
        self._file = file
        self._staging = staging
        self._pinned = pinned
        self._file_offset = file_offset
        self._checker = checker
        self._checksums = checksums or {}
        self._align = max(1, file.direct.offset_align, file.direct.mem_align)
        if checker is not None:
            self._align = max(self._align, BLOCK_BYTES)
        self.bytes_read = 0
        self.wait_seconds = 0.0

    def rows(self, table: Tensor, ids: NDArray[np.int64]) -> Floats:
        """Rows `ids` [T] of `table` -> float32 [T, cols]. Raises UsageError for a row that it lacks."""
        distinct, back = np.unique(ids, return_inverse=True)
        if distinct.size and not 0 <= distinct[0] <= distinct[-1] < table.rows:
            wrong = int(distinct[0] if distinct[0] < 0 else distinct[-1])
            raise UsageError(f"token {wrong} is outside of the vocabulary of {table.rows}")
        out = np.empty((len(distinct), table.cols), np.float32)
        wanted: list[tuple[int, Piece, _Block]] = []
        starts = [piece.row_start for piece in table.pieces]
        for position, row in enumerate(distinct.tolist()):
            piece = table.pieces[bisect.bisect_right(starts, row) - 1]
            memory = self._pinned(piece.segment)
            if memory is not None:
                out[position] = decode_rows(piece.weight(memory), np.array([row - piece.row_start]))[0]
            else:
                offset = self._file_offset(piece.segment) + piece.start
                wanted.append((position, piece, _block(piece, row - piece.row_start, offset, self._align)))
        for batch in self._batches(wanted):
            self._read(batch, out)
        return out[back.reshape(-1)]

    def close(self) -> None:
        """Lets go of the staging buffer."""
        self._staging = self._staging[:0].copy()

    def _batches(
        self, wanted: Sequence[tuple[int, Piece, _Block]]
    ) -> Iterator[list[tuple[int, Piece, _Block]]]:
        batch: list[tuple[int, Piece, _Block]] = []
        room = self._staging.size
        for item in wanted:
            if item[2].nbytes > self._staging.size:
                raise ResidencyError(
                    f"an embedding row takes {item[2].nbytes} bytes and the staging buffer has"
                    f" {self._staging.size}"
                )
            if item[2].nbytes > room:
                yield batch
                batch, room = [], self._staging.size
            batch.append(item)
            room -= item[2].nbytes
        if batch:
            yield batch

    def _read(self, batch: Sequence[tuple[int, Piece, _Block]], out: Floats) -> None:
        requests = []
        filled = 0
        for _, _, block in batch:
            for window in block.windows:
                destination = self._staging[filled : filled + window.nbytes]
                requests.append(ReadRequest(self._file, window.offset, destination, Priority.DEMAND))
                filled += window.nbytes
        began = time.perf_counter()
        self._reader.wait(self._reader.submit(requests))
        self.wait_seconds += time.perf_counter() - began
        self.bytes_read += filled
        arrived = iter(requests)
        for position, piece, block in batch:
            windows = [(next(arrived), window) for window in block.windows]
            if self._checker is not None:
                for request, _ in windows:
                    self._check(self._checker, piece, block.row, request)
            sections = [request.destination[window.start : window.stop] for request, window in windows]
            packed = piece.format.join(block.rows, piece.cols, sections)
            weight = Weight(piece.format, block.rows, piece.cols, packed)
            out[position] = decode_rows(weight, np.array([block.row - block.first]))[0]

    def _check(self, checker: ReadChecker, piece: Piece, row: int, request: ReadRequest) -> None:
        """Raises IntegrityError, naming the row, if what `request` brought is not what was packed."""
        checksums = self._checksums.get(piece.segment)
        if checksums is None:
            raise ResidencyError(
                f"rows of segment {piece.segment} are read, and it has no checksums for them"
            )
        first = (request.offset - self._file_offset(piece.segment)) // BLOCK_BYTES
        expected = checksums[first : first + request.destination.size // BLOCK_BYTES].tolist()
        checker.confirm_blocks(
            f"row {piece.row_start + row} of an embedding table", request, expected, BLOCK_BYTES
        )
