"""A ring without a kernel: it moves bytes from an array and gives the results that a test scripts."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uringinfer.storage.direct import Direct, StorageFile
from uringinfer.storage.uring import RingLike, RingRead, UringReader

Script = Callable[[RingRead], int]

BLOCK = 4096
BUFFERED = Direct(False, "scripted", 1, 1)
FILE = StorageFile(Path("weights.bin"), 99, 1 << 20, BUFFERED)


def open_scripted(ring: RingLike, *, queue_depth: int = 8, **options: Any) -> UringReader:
    return UringReader(ring, queue_depth=queue_depth, split_bytes=BLOCK, **options)


class ScriptedRing:
    """Takes reads of `content` and completes them on `reap`, newest first if `reverse`.

    `script` says a read's result, by default all of its bytes; as many are moved. `held` keeps every
    completion back. `submit_results` and `reap_results` are given out, one a call, before calls succeed;
    `room` bounds how many reads one submit takes.
    """

    FIXED_FILE = 1
    ASYNC = 2

    def __init__(self, content: NDArray[np.uint8], script: Script | None = None) -> None:
        self.content = content
        self.script: Script = script or (lambda read: read.nbytes)
        self.taken: list[RingRead] = []
        self.held = False
        self.reverse = False
        self.submit_results: list[int] = []
        self.reap_results: list[int] = []
        self.register_result = 0
        self.registered: list[tuple[int, int, int]] = []
        self.registered_fds: list[int] = []
        self.room = 1 << 30
        self.most_in_flight = 0
        self.closed = False
        self._waiting: list[RingRead] = []
        self._ready: list[tuple[int, int]] = []
        self._retired = 0

    @property
    def accepted(self) -> int:
        return len(self.taken)

    @property
    def in_flight(self) -> int:
        return len(self.taken) - self._retired

    @property
    def unmoved(self) -> int:
        """How many reads were taken whose memory is still to be written."""
        return len(self._waiting)

    def submit(self, reads: Sequence[RingRead]) -> int:
        result = self.submit_results.pop(0) if self.submit_results else 0
        accepted = list(reads[: self.room])
        self.taken += accepted
        self._waiting += accepted
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return result

    def reap(self, wait: bool) -> tuple[int, list[tuple[int, int]]]:
        if self.reap_results:
            return self.reap_results.pop(0), []
        assert not (wait and self.held), "a wait for a ring that holds everything back would never end"
        if not self.held:
            moved = [(read.number, self._move(read)) for read in self._waiting]
            self._ready += reversed(moved) if self.reverse else moved
            self._waiting.clear()
        assert self._ready or not wait, "a wait with nothing in flight would never end"
        return 0, list(self._ready)

    def advance(self, count: int) -> None:
        del self._ready[:count]
        self._retired += count

    def register_buffers(self, address: int, nbytes: int, step: int) -> int:
        self.registered.append((address, nbytes, step))
        return self.register_result

    def register_files(self, fds: Sequence[int]) -> int:
        self.registered_fds = list(fds)
        return self.register_result

    def close(self) -> None:
        self.closed = True

    def _move(self, read: RingRead) -> int:
        result = self.script(read)
        if result > 0:
            source = np.ascontiguousarray(self.content[read.offset : read.offset + result])
            ctypes.memmove(read.address, source.ctypes.data, source.size)
        return result
