"""Clocks real reads of a file for a moment: not a benchmark, but enough to see what kind of drive it is.

Every read goes to an offset that this clock has not read before, in random order, until all of the file was
read once; then it begins anew. `uringinfer probe` measures properly.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from uringinfer.planning.rates import LONE_BYTES
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.reader import Priority, Reader, ReadRequest, Ticket, open_reader

BLOCK_BYTES = 4 << 20
_BLOCKS_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class ReadRate:
    """What was read in how long; `cpu_seconds` is the process' own, `passes` how often the file was read."""

    nbytes: int
    seconds: float
    cpu_seconds: float
    reader: str
    passes: int

    @property
    def bytes_per_second(self) -> float:
        return self.nbytes / self.seconds

    @property
    def cpu_ms_per_gb(self) -> float:
        """Milliseconds of CPU for each GB (10^9 bytes) read."""
        return self.cpu_seconds * 1e3 / (self.nbytes / 1e9)


def clock_reads(
    file: StorageFile, seconds: float, *, clock: Callable[[], float] = time.perf_counter
) -> ReadRate | None:
    """Reads `file` for `seconds`; None if it is shorter than one block of 4 MiB. Raises IntegrityError for a
    read that fails."""
    blocks = file.nbytes // BLOCK_BYTES
    if not blocks:
        return None
    in_flight = min(_BLOCKS_IN_FLIGHT, blocks)
    with Arena(in_flight * BLOCK_BYTES) as arena:
        reader = open_reader(arena=arena, files=[file])
        try:
            return _clock(file, reader, arena, seconds, clock)
        finally:
            reader.close()


def _clock(
    file: StorageFile, reader: Reader, arena: Arena, seconds: float, clock: Callable[[], float]
) -> ReadRate:
    buffers = [arena.carve(BLOCK_BYTES) for _ in range(arena.nbytes // BLOCK_BYTES)]
    numbers = _fresh_blocks(file.nbytes // BLOCK_BYTES)
    waiting: deque[Ticket] = deque()
    submitted = 0
    began, cpu_began = clock(), _cpu_seconds()
    while clock() - began < seconds or not submitted:
        if len(waiting) == len(buffers):
            reader.wait(waiting.popleft())  # the oldest, which frees the buffer that is next in turn
        destination = buffers[submitted % len(buffers)]
        offset = next(numbers) * BLOCK_BYTES
        waiting.append(reader.submit([ReadRequest(file, offset, destination, Priority.TRUNK)]))
        submitted += 1
    for ticket in waiting:
        reader.wait(ticket)
    return ReadRate(
        nbytes=submitted * BLOCK_BYTES,
        seconds=clock() - began,
        cpu_seconds=_cpu_seconds() - cpu_began,
        reader=reader.name,
        passes=-(-submitted // (file.nbytes // BLOCK_BYTES)),
    )


def clock_latency(
    file: StorageFile, seconds: float, *, clock: Callable[[], float] = time.perf_counter
) -> float | None:
    """Seconds that one small read takes with nothing else in flight, in the mean of `seconds`, in random
    places; None for a file of no whole block. Raises IntegrityError for a read that fails."""
    blocks = file.nbytes // LONE_BYTES
    if not blocks:
        return None
    random = np.random.default_rng()
    with Arena(LONE_BYTES) as arena:
        destination = arena.carve(LONE_BYTES)
        reader = open_reader(arena=arena, files=[file])
        try:
            reads, began = 0, clock()
            while (passed := clock() - began) < seconds or not reads:
                offset = int(random.integers(blocks)) * LONE_BYTES
                reader.wait(reader.submit([ReadRequest(file, offset, destination, Priority.DEMAND)]))
                reads += 1
            return passed / reads
        finally:
            reader.close()


def _fresh_blocks(count: int) -> Iterator[int]:
    """Numbers below `count` in a random order, each once before any comes again."""
    generator = np.random.default_rng()
    while True:
        yield from generator.permutation(count).tolist()


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system
