"""How a group of tensors is cut into segments. Pure: sizes in, cuts out.

A segment holds whole tensors of one group in order of execution; a tensor larger than a segment is split
into panels of rows of nearly equal size. A small tensor before such a matrix shares a segment with its first
panel: a segment of its own would take a whole ring slot for a few bytes and stall the reads behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uringinfer.kernels.formats import weight_format

ALIGN = 64
"""Tensors start at multiples of this in their segment, for aligned vector loads."""
BLOCK = 4096
MIN_AUTO_BYTES = 1 << 20
MAX_AUTO_BYTES = 64 << 20
AUTO_SHARE = 64


@dataclass(frozen=True, slots=True)
class Item:
    """A tensor to place: rows x cols in `format`. `splittable` allows panels."""

    name: str
    format: str
    rows: int
    cols: int
    splittable: bool

    def nbytes(self, rows: int) -> int:
        return weight_format(self.format).nbytes(rows, self.cols)


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows [start, stop) of item `index` at `offset` of a segment."""

    index: int
    start: int
    stop: int
    offset: int
    nbytes: int


def auto_segment_bytes(model_bytes: int) -> int:
    """The default size of a segment: 64 MiB, but at most 1/64 of the model and at least 1 MiB.

    64 MiB is far beyond what a drive needs for its full rate. Two ring slots of 1/64 each let even a small
    model stream in about 3 % of its size; below 1 MiB, the cost of a read begins to show.
    """
    share = model_bytes // AUTO_SHARE // BLOCK * BLOCK
    return max(MIN_AUTO_BYTES, min(MAX_AUTO_BYTES, share))


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def cut_group(items: Sequence[Item], segment_bytes: int | None) -> list[list[Cut]]:
    """The segments of a group, in order; `segment_bytes` None makes one of all.

    A segment has at most `segment_bytes` unless a single unsplittable tensor, or a single smallest panel, is
    larger.
    """
    segments: list[list[Cut]] = [[]]
    for index, item in enumerate(items):
        whole = item.nbytes(item.rows)
        if segment_bytes is None or _start(segments[-1]) + whole <= segment_bytes:
            segments[-1].append(Cut(index, 0, item.rows, _start(segments[-1]), whole))
            continue
        splits = item.splittable and whole > segment_bytes
        # what is open stays open only for the panels of a matrix, while it leaves them most of the room
        if segments[-1] and not (splits and _start(segments[-1]) <= segment_bytes // 4):
            segments.append([])
        if not splits:
            segments[-1].append(Cut(index, 0, item.rows, 0, whole))
            continue
        for number, (start, stop) in enumerate(_panels(item, segment_bytes, _start(segments[-1]))):
            if number:
                segments.append([])
            offset = _start(segments[-1])
            segments[-1].append(Cut(index, start, stop, offset, item.nbytes(stop - start)))
    return [segment for segment in segments if segment]


def _start(segment: list[Cut]) -> int:
    """Where the next tensor of this segment starts."""
    return round_up(segment[-1].offset + segment[-1].nbytes, ALIGN) if segment else 0


def _panels(item: Item, segment_bytes: int, used: int) -> Iterator[tuple[int, int]]:
    """Row ranges of panels, balanced so that all segments come out alike; the first has `used` bytes less."""
    step = weight_format(item.format).row_granularity
    per_step = max(1, item.nbytes(step))
    blocks = -(-item.rows // step)
    room = max(1, segment_bytes // per_step)
    taken = min(-(-used // per_step), room - 1)
    count = -(-(blocks + taken) // room)
    start = 0
    for number in range(count):
        stop = (blocks + taken) * (number + 1) // count - taken
        if stop > start:
            yield start * step, min(stop * step, item.rows)
        start = max(start, stop)
