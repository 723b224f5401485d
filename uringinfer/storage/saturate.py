"""Two loops that keep a queue full and note when each read began, was handed over, and was there.

The ring's loop is in C: on a fast drive a few microseconds of Python for each small read would be measured
along with it. The loop of the threads is Python, as it is in the reader that it stands for.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import EnvironmentError_
from uringinfer.storage.uring import NOTE_DTYPE, Ring

Int64s = NDArray[np.int64]

BATCH = 4
"""One call of the kernel takes so many reads at most. The drive is told of them when the call ends: were all
that came back at once handed over in one call, it would wait until the last of them is prepared. One by one
would cost a call for each."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What happened to the reads that were begun, in their order; int64 [reads] each.

    `begin`, `submitted` and `end` in nanoseconds; `results` in bytes, or -errno.
    """

    begin: Int64s
    submitted: Int64s
    end: Int64s
    results: Int64s


def keep_ring_full(ring: Ring, reads: NDArray[np.void], depth: int, seconds: float) -> Trace:
    """Reads `reads` (READ_DTYPE [n], numbered from 0) with up to `depth` in flight, for at most `seconds`.

    Nothing is in flight afterwards, even if this raises.
    """
    notes = np.zeros(len(reads), NOTE_DTYPE)
    try:
        finished = ring.saturate(reads, notes, depth, BATCH, time.monotonic_ns() + int(seconds * 1e9))
    except OSError as error:
        raise EnvironmentError_(f"io_uring failed: {error.strerror}", hint="use preadv") from None
    finally:
        while ring.in_flight:
            _, results = ring.reap(wait=True)
            ring.advance(len(results))
    done = notes[:finished]
    return Trace(begin=done["begin"], submitted=done["submitted"], end=done["end"], results=done["result"])


def keep_threads_busy(fd: int, offsets: Sequence[int], slots: Sequence[memoryview], seconds: float) -> Trace:
    """Reads a block at each of `offsets` into `slots`, a thread for each slot, for at most `seconds`.

    All threads have ended afterwards, even if this raises.
    """
    turns = itertools.count()
    stop = threading.Event()
    clock = time.perf_counter_ns
    deadline = clock() + int(seconds * 1e9)
    notes: list[tuple[int, int, int, int]] = []

    def work(slot: memoryview) -> None:
        # each turn is taken by one thread only: next() on a count is one step under the interpreter's lock
        while (turn := next(turns)) < len(offsets) and not stop.is_set():
            began = clock()
            if began > deadline and turn >= len(slots):
                return
            try:
                result = os.preadv(fd, [slot], offsets[turn])
            except OSError as error:
                result = -(error.errno or errno.EIO)
            notes.append((turn, began, clock(), result))

    threads = [
        threading.Thread(target=work, args=(slot,), name=f"probe-{number}", daemon=True)
        for number, slot in enumerate(slots)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    table = np.array(sorted(notes), np.int64).reshape(-1, 4)
    begin, end, results = table[:, 1], table[:, 2], table[:, 3]
    return Trace(begin=begin, submitted=begin, end=end, results=results)
