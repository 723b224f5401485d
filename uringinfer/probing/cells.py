"""Which cells a probe measures, and how long each."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from uringinfer.storage.throughput import Cell, Engine, Pattern

Mode = Literal["quick", "normal", "full"]

KIB, MIB = 1 << 10, 1 << 20
BLOCKS = (4 * KIB, 64 * KIB, 512 * KIB, 2 * MIB, 16 * MIB)
DEPTHS = (1, 2, 4, 8, 16, 32, 64)

IN_FLIGHT_BYTES = 256 * MIB
"""More than this in flight tells nothing new about a drive and takes memory from others."""

_SECONDS: dict[Mode, float] = {"quick": 0.5, "normal": 1.0, "full": 2.0}


class Way(enum.StrEnum):
    """A way to read: an engine, past the page cache or (buffered: threads) through it."""

    URING = "uring"
    REGISTERED = "uring registered"
    PREADV = "preadv"
    BUFFERED = "buffered"

    @property
    def engine(self) -> Engine:
        return Engine.PREADV if self is Way.BUFFERED else Engine(self.value)

    @property
    def needs_ring(self) -> bool:
        return self in (Way.URING, Way.REGISTERED)


@dataclass(frozen=True, slots=True)
class ProbeCell:
    """One row of the table to be."""

    way: Way
    pattern: Pattern
    block_bytes: int
    queue_depth: int

    @property
    def cell(self) -> Cell:
        """What the meter measures."""
        return Cell(self.block_bytes, self.queue_depth, self.pattern, self.way.engine)


def choose_cells(
    mode: Mode, file_bytes: int, model_blocks: Sequence[int] = (), memory: int = IN_FLIGHT_BYTES
) -> tuple[list[ProbeCell], float]:
    """The cells of `mode` that fit into a file of `file_bytes` and into `memory`, and seconds for each.

    `model_blocks` are sizes that a model is read in; multiples of 4096.
    """
    fitting = [
        cell
        for cell in dict.fromkeys(_cells(mode, tuple(dict.fromkeys(model_blocks))))
        if cell.block_bytes * cell.queue_depth <= min(file_bytes, memory, IN_FLIGHT_BYTES)
    ]
    return fitting, _SECONDS[mode]


def _cells(mode: Mode, model_blocks: tuple[int, ...]) -> Iterator[ProbeCell]:
    if mode == "full":
        every = itertools.product(Way, Pattern, sorted({*BLOCKS, *model_blocks}), DEPTHS)
        yield from (ProbeCell(*values) for values in every)
        return
    random, ring = Pattern.RANDOM, Way.REGISTERED
    if mode == "quick":
        shapes = [(4 * KIB, 1), (4 * KIB, 32), (64 * KIB, 8), (512 * KIB, 8), (16 * MIB, 4)]
        shapes += [(2 * MIB, depth) for depth in (1, 4, 16)]
        shapes += [(block, depth) for block in model_blocks for depth in (1, 8)]
        yield from (ProbeCell(ring, random, *shape) for shape in sorted(shapes))
        yield ProbeCell(ring, Pattern.SEQUENTIAL, 2 * MIB, 16)
        yield from (ProbeCell(way, random, 2 * MIB, 16) for way in Way if way is not ring)
        return
    blocks = sorted({*BLOCKS, *model_blocks})
    for pattern, block, depth in itertools.product(Pattern, blocks, (1, 4, 16, 64)):
        yield ProbeCell(ring, pattern, block, depth)
    for way, block in itertools.product([way for way in Way if way is not ring], (4 * KIB, 2 * MIB)):
        yield ProbeCell(way, random, block, 16)
