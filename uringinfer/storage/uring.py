"""A reader on io_uring.

`Ring` is the kernel's ring through cffi: many reads go down in one call, many results come up in one.
`UringReader` keeps the contract of `contract.Reader` on top of it, or on top of anything else with the
methods of `RingLike`, such as a test's script.

How it survives Ctrl-C at any line. The kernel's side is the truth, twice: which pieces it has taken
(`accepted`, a count, because pieces are numbered without gaps and sent in order), and which results were
processed (`advance`, called after that; until then `reap` shows the same results again, and a result that
was processed already is ignored). So whatever Python had not recorded when it was interrupted is done by
the next call.

Reads of a file that goes through the page cache are handed to the kernel's own threads (URING_ASYNC): without
that, submitting would copy what is cached at once, in the caller's time, and stop at each page that is not.
"""

from __future__ import annotations

import dataclasses
import errno
import importlib
import os
import resource
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.storage.arena import Arena
from uringinfer.storage.contract import ReaderStatistics, ReadRequest, Ticket
from uringinfer.storage.denial import Denial, import_denial, registration_note, setup_denial
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.pieces import Piece, PieceQueue, own_submission

BUFFER_BYTES = 1 << 30
"""The kernel takes no larger registered buffer; an arena becomes several."""

LATER = (-errno.EAGAIN, -errno.EBUSY, -errno.EINTR)
"""What a ring answers that is not ready now: ask again."""

READ_DTYPE = np.dtype(
    [
        ("number", np.uint64),
        ("offset", np.uint64),
        ("address", np.uint64),
        ("nbytes", np.uint32),
        ("file", np.int32),
        ("buffer", np.int32),
        ("flags", np.uint32),
    ]
)
"""`struct uring_read` of uring.h, for arrays of reads."""

NOTE_DTYPE = np.dtype([(name, np.int64) for name in ("begin", "submitted", "end", "result")])
"""`struct uring_note` of uring.h."""


class RingRead(NamedTuple):
    """One read as the ring takes it, field for field `struct uring_read` of uring.h."""

    number: int
    offset: int
    address: int
    nbytes: int
    file: int
    buffer: int
    flags: int


class RingLike(Protocol):
    """What the reader asks of a ring. Results are 0 or a count, or -errno."""

    FIXED_FILE: int
    ASYNC: int

    @property
    def accepted(self) -> int:
        """How many reads it has taken since it was opened."""
        ...

    @property
    def in_flight(self) -> int:
        """How many of them `advance` has not yet counted."""
        ...

    def submit(self, reads: Sequence[RingRead]) -> int: ...

    def reap(self, wait: bool) -> tuple[int, list[tuple[int, int]]]:
        """0 or -errno, and results as (number, bytes or -errno), the same ones until `advance`."""
        ...

    def advance(self, count: int) -> None: ...

    def register_buffers(self, address: int, nbytes: int, step: int) -> int: ...

    def register_files(self, fds: Sequence[int]) -> int: ...

    def close(self) -> None: ...


class Ring:
    """The kernel's ring for `depth` reads in flight; `flags` names the IORING_SETUP_* that it has."""

    _FLAG_NAMES = ((1 << 8, "COOP_TASKRUN"), (1 << 12, "SINGLE_ISSUER"), (1 << 13, "DEFER_TASKRUN"))

    def __init__(self, module: Any, depth: int) -> None:
        self._ffi = ffi = module.ffi
        self._lib = module.lib
        self.FIXED_FILE: int = self._lib.URING_FIXED_FILE
        self.ASYNC: int = self._lib.URING_ASYNC
        pointer, flags = ffi.new("struct uring **"), ffi.new("unsigned *")
        result = self._lib.uring_open(depth, pointer, flags)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        self._ring = pointer[0]
        self._depth = depth
        self._reads = ffi.new("struct uring_read[]", depth)
        self._done = ffi.new("struct uring_done[]", depth)
        self.flags = [name for bit, name in self._FLAG_NAMES if flags[0] & bit]

    @property
    def accepted(self) -> int:
        count: int = self._lib.uring_accepted(self._ring)
        return count

    @property
    def in_flight(self) -> int:
        count: int = self._lib.uring_in_flight(self._ring)
        return count

    def submit(self, reads: Sequence[RingRead]) -> int:
        for i, read in enumerate(reads):
            self._reads[i] = read
        result: int = self._lib.uring_submit(self._ring, self._reads, len(reads))
        return result

    def reap(self, wait: bool) -> tuple[int, list[tuple[int, int]]]:
        count: int = self._lib.uring_reap(self._ring, self._done, self._depth, wait)
        if count <= 0:
            return count, []
        done = self._done
        return 0, [(done[i].number, done[i].result) for i in range(count)]

    def saturate(
        self, reads: NDArray[np.void], notes: NDArray[np.void], depth: int, batch: int, deadline: int
    ) -> int:
        """Keeps `depth` of `reads` (READ_DTYPE [n], numbered from 0) in flight until `deadline`, in ns.

        One call of the kernel takes up to `batch` (1 or more) of them. Fills `notes` (NOTE_DTYPE [n]); how
        many reads were done. For measuring: no Python runs between two reads. Raises OSError if the ring
        fails. After KeyboardInterrupt, reads may be in flight.
        """
        ffi = self._ffi
        packed_reads = ffi.from_buffer("struct uring_read[]", reads)
        packed_notes = ffi.from_buffer("struct uring_note[]", notes)
        fields = (packed_reads, packed_notes, deadline, len(reads), depth, batch, 0, 0)
        run = ffi.new("struct uring_run *", fields)
        while status := self._lib.uring_saturate(self._ring, run):
            if status not in LATER:
                raise OSError(-status, os.strerror(-status))
        finished: int = run.finished
        return finished

    def advance(self, count: int) -> None:
        self._lib.uring_advance(self._ring, count)

    def register_buffers(self, address: int, nbytes: int, step: int) -> int:
        result: int = self._lib.uring_register_buffers(self._ring, address, nbytes, step)
        return result

    def register_files(self, fds: Sequence[int]) -> int:
        result: int = self._lib.uring_register_files(self._ring, list(fds), len(fds))
        return result

    def close(self) -> None:
        self._lib.uring_close(self._ring)


def open_ring(depth: int) -> Ring | Denial:
    """A ring, or why there is none."""
    try:
        module = importlib.import_module("uringinfer.storage._uring")
    except ImportError as error:
        return import_denial(error)
    try:
        return Ring(module, depth)
    except OSError as error:
        return setup_denial(error.errno or errno.EIO)


class UringReader:
    """Reads through `ring`, which it owns from now on; see `contract.Reader` for the contract."""

    name = "uring"
    overlaps = True

    def __init__(
        self,
        ring: RingLike,
        *,
        queue_depth: int,
        split_bytes: int,
        arena: Arena | None = None,
        files: Sequence[StorageFile] = (),
    ) -> None:
        self.notes: list[str] = []
        self._ring = ring
        self._queue = PieceQueue(split_bytes, queue_depth)
        self._owner = threading.get_ident()
        self._closed = False
        self._wait_seconds = 0.0
        self._buffers_start = self._buffers_end = 0
        # by identity, not by descriptor: a number is used again after its file was closed
        self._file_index: dict[StorageFile, int] = {}
        if arena is not None:
            self._register_arena(arena)
        if files:
            self._register_files(files)

    def submit(self, requests: Sequence[ReadRequest]) -> Ticket:
        self._check_usable()
        submission = self._queue.push(requests)
        self._start()
        return submission

    def submit_each(self, requests: Sequence[ReadRequest]) -> Sequence[Ticket]:
        self._check_usable()
        submissions = self._queue.push_each(requests)
        self._start()
        return submissions

    def wait(self, ticket: Ticket) -> None:
        submission = own_submission(ticket)
        if not submission.done:
            self._check_usable()
            began = time.perf_counter()
            try:
                self._queue.promote(submission)
                self._start()
                while not submission.done:
                    self._collect(wait=True)
                    self._start()
            finally:
                self._wait_seconds += time.perf_counter() - began
        if submission.error is not None:
            raise submission.error

    def promote(self, tickets: Sequence[Ticket]) -> None:
        self._check_usable()
        for ticket in tickets:
            self._queue.promote(own_submission(ticket))
        self._start()

    def withdraw(self, ticket: Ticket) -> bool:
        self._check_usable()
        return self._queue.withdraw(own_submission(ticket))

    def poll(self) -> None:
        self._check_usable()
        if not self._queue.started or self._collect(wait=False):
            self._start()

    def statistics(self) -> ReaderStatistics:
        counters = self._queue.statistics
        return dataclasses.replace(
            counters,
            wait_seconds=self._wait_seconds,
            in_flight_seconds=self._queue.in_flight_seconds,
            bytes_by_priority=dict(counters.bytes_by_priority),
        )

    def close(self) -> None:
        if self._closed:
            return
        self._check_usable()
        while self._ring.in_flight:
            self._collect(wait=True)
        self._closed = True
        self._ring.close()

    def _check_usable(self) -> None:
        if self._closed:
            raise UsageError("the reader is closed", hint="wait for all reads, then close")
        if threading.get_ident() != self._owner:
            raise UsageError(
                "a reader belongs to the thread that made it, another one used it",
                hint="make one in each thread",
            )

    def _start(self) -> None:
        """Starts what there is room for and hands the ring what it has not taken yet."""
        queue = self._queue
        while (piece := queue.peek()) is not None:
            queue.start(piece)
        accepted = self._ring.accepted
        if accepted < queue.next_number:
            unsent = range(accepted, queue.next_number)
            result = self._ring.submit([self._ring_read(number, queue.started[number]) for number in unsent])
            if result < 0 and result not in LATER:
                raise EnvironmentError_(
                    f"io_uring failed to submit: {os.strerror(-result)}", hint="use preadv"
                )

    def _collect(self, wait: bool) -> int:
        """Processes the results that are there, or sleeps for the first; how many they were."""
        status, results = self._ring.reap(wait)
        if status < 0 and status not in LATER:
            raise EnvironmentError_(f"io_uring failed to wait: {os.strerror(-status)}", hint="use preadv")
        for number, result in results:
            self._queue.complete(number, result)
        if results:
            self._ring.advance(len(results))
        return len(results)

    def _ring_read(self, number: int, piece: Piece) -> RingRead:
        file = piece.read.request.file
        index = self._file_index.get(file)
        address = piece.address
        return RingRead(
            number=number,
            offset=piece.offset,
            address=address,
            nbytes=piece.nbytes,
            file=file.fd if index is None else index,
            buffer=self._buffer_index(address, piece.nbytes),
            flags=(0 if index is None else self._ring.FIXED_FILE)
            | (0 if file.direct.is_direct else self._ring.ASYNC),
        )

    def _buffer_index(self, address: int, nbytes: int) -> int:
        """The registered buffer that holds these bytes; -1 if none does, or two do in part."""
        first = address - self._buffers_start
        last = first + nbytes - 1
        if first < 0 or address + nbytes > self._buffers_end or first // BUFFER_BYTES != last // BUFFER_BYTES:
            return -1
        return first // BUFFER_BYTES

    def _register_arena(self, arena: Arena) -> None:
        result = self._ring.register_buffers(arena.address, arena.nbytes, BUFFER_BYTES)
        if result < 0:
            limits = resource.getrlimit(resource.RLIMIT_MEMLOCK)
            self.notes.append(registration_note(-result, arena.nbytes, limits))
            return
        self._buffers_start = arena.address
        self._buffers_end = arena.address + arena.nbytes

    def _register_files(self, files: Sequence[StorageFile]) -> None:
        result = self._ring.register_files([file.fd for file in files])
        if result < 0:
            self.notes.append(
                f"the ring does not take {len(files)} files in advance ({os.strerror(-result)}); "
                "each read costs a little more CPU"
            )
            return
        self._file_index = {file: index for index, file in enumerate(files)}
