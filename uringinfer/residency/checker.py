"""Whether bytes that were read are those that were packed, before anybody computes with them.

Checking costs what reading memory costs once (ISA-L: 30 to 50 GB/s on one core). Small reads are checked by
the thread that needs them, when it needs them. Large ones are handed to a thread of the checker's own as
soon as they have arrived, so that they are checked while others are computed; neither holds the
interpreter's lock.

A read that is damaged is made once more before it is an error. If the second one is right, the run goes on
and its report says so: the drive has what was packed, and something between it and memory lost bits. If both
gave the same bytes, the drive holds damage.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from uringinfer.container.checksum import PROVIDER, crc32
from uringinfer.container.manifest import MANIFEST_NAME
from uringinfer.errors import IntegrityError
from uringinfer.storage.filesystem import evict
from uringinfer.storage.reader import Bytes, Priority, Reader, ReadRequest

HAND_OVER_BYTES = {"isal": 4 << 20, "zlib": 256 << 10}[PROVIDER]
"""Reads of at least so many bytes are worth another thread: about a tenth of a millisecond."""

Started = Future[int]
"""A checksum that is being computed."""

_SHOWN = 8
"""Notes kept; the counter goes on."""


@dataclass(frozen=True, slots=True)
class CheckStatistics:
    """Counters since the checker was made: bytes checked, seconds in which the computing thread computed
    checksums or waited for one, reads that were damaged and right when they were made again."""

    nbytes: int = 0
    seconds: float = 0.0
    repeated: int = 0


class ReadChecker:
    """Checks what `reader` read. Belongs to the thread that the reader belongs to; `close` it before the
    memory goes."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._thread: ThreadPoolExecutor | None = None
        self._nbytes = 0
        self._seconds = 0.0
        self._repeated = 0
        self.notes: list[str] = []
        """What was read damaged and was right when it was read again."""

    def hands_over(self, nbytes: int) -> bool:
        """Whether `start` takes a read of so many bytes."""
        return nbytes >= HAND_OVER_BYTES

    def start(self, data: Bytes) -> Started | None:
        """Begins to compute the checksum of `data`, which must not change until `confirm` has it; None if
        that is not worth another thread."""
        if not self.hands_over(data.size):
            return None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="check")
        return self._thread.submit(crc32, data)

    def confirm(self, what: str, request: ReadRequest, expected: int, started: Started | None = None) -> None:
        """Returns if the bytes that `request` brought have the checksum `expected`, now or when they are read
        again. `what` names them for a person; `started` is what `start` gave.

        Raises IntegrityError that says what is damaged, where it lies, and what the second read gave.
        """
        began = time.perf_counter()
        found = crc32(request.destination) if started is None else started.result()
        self._nbytes += request.destination.size
        self._seconds += time.perf_counter() - began
        if found != expected:
            self._again(what, request, found, expected)

    def confirm_blocks(self, what: str, request: ReadRequest, expected: list[int], block_bytes: int) -> None:
        """The same for a read of whole blocks of `block_bytes` bytes, each with a checksum of its own."""
        began = time.perf_counter()
        data = request.destination
        for number, checksum in enumerate(expected):
            block = data[number * block_bytes : (number + 1) * block_bytes]
            found = crc32(block)
            if found != checksum:
                offset = request.offset + number * block_bytes
                again = ReadRequest(request.file, offset, block, Priority.DEMAND)
                where = f"{what}, block {offset // block_bytes} of the file"
                self._again(where, again, found, checksum)
        self._nbytes += data.size
        self._seconds += time.perf_counter() - began

    def statistics(self) -> CheckStatistics:
        return CheckStatistics(self._nbytes, self._seconds, self._repeated)

    def close(self) -> None:
        """Waits for what was started."""
        if self._thread is not None:
            self._thread.shutdown()

    def _again(self, what: str, request: ReadRequest, first: int, expected: int) -> None:
        """Reads once more; raises unless that is right."""
        file, nbytes = request.file, request.destination.size
        if not file.direct.is_direct:
            evict(file.fd, request.offset, nbytes)  # else the same bytes would come out of the page cache
        again = ReadRequest(file, request.offset, request.destination, Priority.DEMAND)
        self._reader.wait(self._reader.submit([again]))
        second = crc32(request.destination)
        where = f"{file.path}, {nbytes} bytes at offset {request.offset}"
        if second == expected:
            self._repeated += 1
            if len(self.notes) < _SHOWN:
                self.notes.append(
                    f"{what} ({where}) was read damaged and was right when it was read again: memory, cable"
                    " or controller lose bits; look at the kernel's log (dmesg)"
                )
            return
        if second == first:
            outcome = "a second read gave the same bytes"
            hint = "the drive holds damage: find all of it with 'uringinfer verify', copy or pack again"
        else:
            outcome = f"a second read gave other bytes ({second:08x})"
            hint = "memory, cable or drive lose bits: look at the kernel's log (dmesg) and at smartctl"
        raise IntegrityError(
            f"{what}: checksum mismatch ({first:08x}, {expected:08x} by {MANIFEST_NAME}) in {where};"
            f" {outcome}",
            hint=hint,
        )
