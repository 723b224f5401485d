"""The order of execution, as the container stores it: which tensors come when, and in which segments.

A tensor is one or more pieces. A tensor that fits is one piece; a large matrix is several, each a range of
its rows (a panel) in a segment of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uringinfer.container.manifest import Segment, TensorPart
from uringinfer.errors import IntegrityError
from uringinfer.kernels.formats import Weight, WeightFormat
from uringinfer.storage.reader import Bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows [row_start, row_stop) of a matrix [*, cols], at bytes [start, stop) of segment number `segment`.

    `is_last` says that nothing after it in the order of execution needs the segment.
    """

    segment: int
    format: WeightFormat
    row_start: int
    row_stop: int
    cols: int
    start: int
    stop: int
    is_last: bool

    def weight(self, segment_bytes: Bytes) -> Weight:
        """The piece as a packed matrix, a view into the segment's bytes."""
        rows, data = self.row_stop - self.row_start, segment_bytes[self.start : self.stop]
        return Weight(self.format, rows, self.cols, data)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the trunk: its shape in the checkpoint, as a matrix [rows, cols], its pieces in order."""

    name: str
    shape: tuple[int, ...]
    rows: int
    cols: int
    pieces: tuple[Piece, ...]


def tensors_in_order(segments: Sequence[Segment]) -> tuple[Tensor, ...]:
    """Every tensor of these segments (of a checked manifest) in order of execution.

    Raises IntegrityError if something else lies between two panels of a tensor: the order of execution would
    need two segments at once.
    """
    pieces: dict[str, list[Piece]] = {}
    parts: dict[str, TensorPart] = {}
    latest = ""
    for number, segment in enumerate(segments):
        for position, part in enumerate(segment.parts):
            if part.name in parts and part.name != latest:
                raise IntegrityError(
                    f"segment '{segment.name}': '{latest}' lies between the panels of '{part.name}'",
                    hint="pack the model again",
                )
            latest = part.name
            parts[part.name] = part
            is_last = position == len(segment.parts) - 1
            pieces.setdefault(part.name, []).append(_piece(number, part, is_last))
    return tuple(
        Tensor(name, part.shape, pieces[name][-1].row_stop, part.cols, tuple(pieces[name]))
        for name, part in parts.items()
    )


def _piece(segment: int, part: TensorPart, is_last: bool) -> Piece:
    return Piece(
        segment,
        part.format,
        part.row_start,
        part.row_stop,
        part.cols,
        part.offset,
        part.offset + part.nbytes,
        is_last,
    )
