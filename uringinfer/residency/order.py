"""The order of execution, as the container stores it: which tensors come when, and in which segments.

A tensor is one or more pieces. A tensor that fits is one piece; a large matrix is several, each a range of
its rows (a panel) in a segment of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from uringinfer.container.manifest import Segment, TensorPart
from uringinfer.errors import IntegrityError
from uringinfer.kernels.formats import Weight
from uringinfer.storage.reader import Bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows [row_start, row_stop) of a matrix [*, cols], at bytes [start, stop) of segment number `segment`.

    `is_last` says that nothing after it in the order of execution needs the segment.
    """

    segment: int
    format: str
    row_start: int
    row_stop: int
    cols: int
    start: int
    stop: int
    is_last: bool

    def weight(self, segment_bytes: Bytes) -> Weight:
        """The piece as a packed matrix, a view into the segment's bytes."""
        return Weight(
            self.format, self.row_stop - self.row_start, self.cols, segment_bytes[self.start : self.stop]
        )


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the trunk: its shape in the checkpoint, as a matrix [rows, cols], its pieces in order."""

    name: str
    shape: tuple[int, ...]
    rows: int
    cols: int
    pieces: tuple[Piece, ...]


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """A tensor's shape as rows and columns: the first axis is rows; one axis is a single row."""
    if len(shape) == 1:
        return 1, shape[0]
    return shape[0], math.prod(shape[1:])


def tensors_in_order(segments: Sequence[Segment]) -> tuple[Tensor, ...]:
    """Every tensor of these segments in order of execution.

    Raises IntegrityError if the pieces of a tensor do not follow each other or do not cover it.
    """
    gathered: list[tuple[TensorPart, list[Piece]]] = []
    for number, segment in enumerate(segments):
        for position, part in enumerate(segment.parts):
            if part.row_start == 0:
                gathered.append((part, []))
            elif not gathered or gathered[-1][0].name != part.name:
                raise IntegrityError(
                    f"rows of '{part.name}' from {part.row_start} follow nothing they continue"
                )
            gathered[-1][1].append(_piece(number, part, is_last=position == len(segment.parts) - 1))
    return tuple(_tensor(part, pieces) for part, pieces in gathered)


def _piece(segment: int, part: TensorPart, *, is_last: bool) -> Piece:
    cols = matrix_shape(part.shape)[1]
    rows = (part.row_start, part.row_stop)
    return Piece(segment, part.format, *rows, cols, part.offset, part.offset + part.nbytes, is_last)


def _tensor(part: TensorPart, pieces: Iterable[Piece]) -> Tensor:
    rows, cols = matrix_shape(part.shape)
    pieces = tuple(pieces)
    covered = 0
    for piece in pieces:
        if piece.row_start != covered:
            raise IntegrityError(f"rows {covered} to {piece.row_start} of '{part.name}' are in no segment")
        covered = piece.row_stop
    if covered != rows:
        raise IntegrityError(f"'{part.name}' has {rows} rows and its segments hold {covered}")
    return Tensor(part.name, part.shape, rows, cols, pieces)
