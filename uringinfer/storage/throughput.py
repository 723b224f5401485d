"""Measures how fast a file can be read: one cell of block size, queue depth, pattern and engine at a time.

A cell reads each offset at most once and keeps its queue full until its time is over or the file is read. It
records when each read was handed over, when the hand-over returned, and when its bytes were there; everything
else (rates, percentiles, decay) is computed from those afterwards, by `summarise`, which is pure.

Invariants: every block is at a multiple of its size, no read passes the end of the file; nothing is in flight
when a cell returns or raises, Ctrl-C included. Memory of reads in flight is never looked at, so two of them
may share it.
"""

from __future__ import annotations

import enum
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.storage.contract import Bytes
from uringinfer.storage.denial import Denial
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.saturate import Int64s, Trace, keep_ring_full, keep_threads_busy
from uringinfer.storage.uring import BUFFER_BYTES, READ_DTYPE, open_ring

MAX_READS = 1 << 20
"""A cell ends after so many reads: five seconds at 200,000 a second, and 40 MiB of bookkeeping."""

CpuSeconds = tuple[float, float]
"""In user and in kernel mode."""

_PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)


class Engine(enum.StrEnum):
    """Who reads: the ring, the ring with registered memory and file, or threads."""

    URING = "uring"
    REGISTERED = "uring registered"
    PREADV = "preadv"


class Pattern(enum.StrEnum):
    SEQUENTIAL = "sequential"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to read."""

    block_bytes: int
    queue_depth: int
    pattern: Pattern
    engine: Engine


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of one kind of latency, in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    p99_9: float
    max: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One cell's numbers. Rates in bytes per second; `first_tenth` and `last_tenth` of the time."""

    cell: Cell
    reads: int
    nbytes: int
    seconds: float
    short_reads: int
    errors: int
    submit: Latency
    complete: Latency
    total: Latency
    user_seconds: float
    system_seconds: float
    first_tenth: float
    last_tenth: float

    @property
    def bytes_per_second(self) -> float:
        return self.nbytes / self.seconds if self.seconds else 0.0

    @property
    def reads_per_second(self) -> float:
        return self.reads / self.seconds if self.seconds else 0.0


class Meter:
    """Measures cells on the first `nbytes` bytes of `file`, into `memory` (uint8), at most `seconds` each.

    Sequential cells begin where the one before ended, random ones draw anew: no cell finds what another has
    just read.
    """

    def __init__(self, file: StorageFile, nbytes: int, memory: Bytes, seconds: float) -> None:
        self._file = file
        self._nbytes = nbytes
        self._memory = memory
        self._address: int = memory.ctypes.data
        self._seconds = seconds
        self._random = np.random.default_rng()
        self._position = 0

    def measure(self, cell: Cell) -> Measurement:
        """Runs `cell`.

        Raises UsageError if file or memory are too small for it, EnvironmentError_ without a ring."""
        blocks = self._nbytes // cell.block_bytes
        if blocks < 1 or cell.block_bytes * cell.queue_depth > self._memory.size:
            raise UsageError(
                f"{cell.queue_depth} blocks of {cell.block_bytes} bytes do not fit into memory of "
                f"{self._memory.size} bytes, or one not into a file of {self._nbytes}",
                hint="use a larger file or smaller blocks",
            )
        offsets = self._offsets(cell, blocks)
        run = self._run_threads if cell.engine is Engine.PREADV else self._run_ring
        trace, cpu = run(cell, offsets)
        if cell.pattern is Pattern.SEQUENTIAL:
            self._position = (int(offsets[0]) + len(trace.results) * cell.block_bytes) % self._nbytes
        return summarise(cell, trace, cpu)

    def _offsets(self, cell: Cell, blocks: int) -> Int64s:
        count = min(blocks, MAX_READS)
        if cell.pattern is Pattern.SEQUENTIAL:
            first = self._position // cell.block_bytes
            numbers = (first + np.arange(count)) % blocks
        elif blocks <= 4 * MAX_READS:
            numbers = self._random.permutation(blocks)[:count]
        else:
            numbers = self._random.permutation(np.unique(self._random.integers(0, blocks, count)))
        return numbers.astype(np.int64) * cell.block_bytes

    def _run_ring(self, cell: Cell, offsets: Int64s) -> tuple[Trace, CpuSeconds]:
        ring = open_ring(cell.queue_depth)
        if isinstance(ring, Denial):
            raise EnvironmentError_(f"io_uring cannot be used: {ring.reason}", hint=ring.remedy)
        try:
            reads = np.zeros(len(offsets), READ_DTYPE)
            reads["number"] = np.arange(len(offsets))
            reads["offset"] = offsets
            reads["address"] = self._address + reads["number"] % cell.queue_depth * cell.block_bytes
            reads["nbytes"] = cell.block_bytes
            reads["file"] = self._file.fd
            reads["buffer"] = -1
            if cell.engine is Engine.REGISTERED:
                _check(ring.register_files([self._file.fd]), "file")
                _check(ring.register_buffers(self._address, self._memory.size, BUFFER_BYTES), "memory")
                reads["file"] = reads["buffer"] = 0
                reads["flags"] = ring.FIXED_FILE
            if not self._file.direct.is_direct:
                reads["flags"] |= ring.ASYNC
            return _with_cpu(lambda: keep_ring_full(ring, reads, cell.queue_depth, self._seconds))
        finally:
            ring.close()

    def _run_threads(self, cell: Cell, offsets: Int64s) -> tuple[Trace, CpuSeconds]:
        slots = [
            self._memory[i * cell.block_bytes : (i + 1) * cell.block_bytes].data
            for i in range(cell.queue_depth)
        ]
        chosen = offsets.tolist()
        return _with_cpu(lambda: keep_threads_busy(self._file.fd, chosen, slots, self._seconds))


def _with_cpu(run: Callable[[], Trace]) -> tuple[Trace, CpuSeconds]:
    """What `run` gives, and the CPU of it: reading alone, without opening rings or drawing offsets."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    trace = run()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return trace, (after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime)


def _check(result: int, what: str) -> None:
    if result < 0:
        raise EnvironmentError_(
            f"the ring does not take its {what} in advance: {os.strerror(-result)}",
            hint="raise RLIMIT_MEMLOCK (ulimit -l)",
        )


def summarise(cell: Cell, trace: Trace, cpu: CpuSeconds) -> Measurement:
    """The numbers of `cell` from what happened."""
    moved = np.maximum(trace.results, 0)
    begin, submitted, end = trace.begin, trace.submitted, trace.end
    seconds = (int(end.max()) - int(begin.min())) / 1e9 if len(end) else 0.0
    return Measurement(
        cell=cell,
        reads=len(moved),
        nbytes=int(moved.sum()),
        seconds=seconds,
        short_reads=int(((trace.results >= 0) & (trace.results < cell.block_bytes)).sum()),
        errors=int((trace.results < 0).sum()),
        submit=_latency(submitted - begin),
        complete=_latency(end - submitted),
        total=_latency(end - begin),
        user_seconds=cpu[0],
        system_seconds=cpu[1],
        first_tenth=_rate_within(trace, moved, 0.0, 0.1),
        last_tenth=_rate_within(trace, moved, 0.9, 1.0),
    )


def _latency(nanoseconds: Int64s) -> Latency:
    if not len(nanoseconds):
        return Latency(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    # a percentile is the latency of a read that took place, as fio counts, not a value between two
    values = np.percentile(nanoseconds, _PERCENTILES, method="inverted_cdf")
    return Latency(*(float(value) / 1e9 for value in (nanoseconds.mean(), *values)))


def _rate_within(trace: Trace, moved: Int64s, start: float, stop: float) -> float:
    """Bytes per second between two fractions of the time; a read's bytes count evenly over its duration."""
    if not len(moved):
        return 0.0
    first, last = int(trace.begin.min()), int(trace.end.max())
    low, high = first + (last - first) * start, first + (last - first) * stop
    inside = np.minimum(trace.end, high) - np.maximum(trace.begin, low)
    share = np.clip(inside, 0, None) / np.maximum(trace.end - trace.begin, 1)
    return float((moved * share).sum()) / max((high - low) / 1e9, 1e-9)
