"""A `preadv` that fails, delays, shortens, corrupts, misdirects and repeats by a schedule of a seed."""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections import Counter

PAGE = 4096
HARMLESS = ("delay", "short", "again")
"""What a reader hides: the answer is as if nothing had been."""
WRONG = ("corrupt", "misdirect", "repeat")
"""What nobody notices who does not check."""


class FaultySchedule:
    """In the place of `os.preadv`: about `share` of the reads suffer one of `kinds`. `suffered` counts them.

    Threads take the schedule's next entry in turn, so one seed gives one series of faults, and which read
    meets which is up to the machine.
    """

    def __init__(self, seed: int, kinds: tuple[str, ...], share: float) -> None:
        self.suffered: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._kinds = kinds
        self._share = share
        self._lock = threading.Lock()
        self._last: bytes = b""

    def __call__(self, fd: int, buffers: list[memoryview], offset: int) -> int:
        with self._lock:
            kind = self._rng.choice(self._kinds) if self._rng.random() < self._share else "none"
            place = self._rng.random()
            self.suffered[kind] += 1
        [buffer] = buffers
        match kind:
            case "fail":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case "again":
                raise OSError(errno.EINTR if place < 0.5 else errno.EAGAIN, "later")
            case "delay":
                time.sleep(0.005 * place)
            case "short" if len(buffer) > PAGE:
                half = max(PAGE, len(buffer) // 2 // PAGE * PAGE)
                return os.preadv(fd, [buffer[:half]], offset)
            case "misdirect":
                size = os.fstat(fd).st_size
                elsewhere = round(place * max(0, size - len(buffer))) // PAGE * PAGE
                count = os.preadv(fd, buffers, elsewhere)
                return count if count == len(buffer) else os.preadv(fd, buffers, offset)
            case "repeat" if len(self._last) >= len(buffer):
                buffer[:] = self._last[: len(buffer)]
                return len(buffer)
        count = os.preadv(fd, buffers, offset)
        if kind == "corrupt" and count:
            buffer[int(place * count)] ^= 1 << int(place * 8)
        self._last = bytes(buffer[:count])
        return count
