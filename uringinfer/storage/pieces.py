"""Splits requests into pieces, says which piece goes next, and decides what a piece's result means.

Both readers are this queue and a way to move one piece's bytes. It does no I/O and holds no lock.

How to use it: `peek` a piece, record it with `start`, move its bytes, report them with `complete`. `started`
is the one truth about what is in flight.

Ctrl-C may strike between any two lines. So each change is one assignment or one call that may be repeated,
made in an order in which a repetition at worst reads the same bytes twice: a piece is recorded as started
before its range is taken from the request, a ticket is finished before its last piece is forgotten. After an
interruption, a result that was perhaps half processed can be reported again.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from uringinfer.errors import IntegrityError, UringinferError, UsageError
from uringinfer.storage.contract import GUESS_SHARES, Priority, ReaderStatistics, ReadRequest, Ticket

MAX_ATTEMPTS = 100
"""How often a piece is tried again after EAGAIN or EINTR before that counts as an error."""

MAX_SPLIT_BYTES = 1 << 30
"""One call of the kernel moves at most 0x7ffff000 bytes."""


class Submission:
    """The ticket of one `submit`: done when no read of it is pending. `error` is its first failure."""

    __slots__ = ("error", "pending")

    def __init__(self) -> None:
        self.pending: dict[Read, None] = {}  # ordered, as the requests came
        self.error: UringinferError | None = None

    @property
    def done(self) -> bool:
        return not self.pending


class Read:
    """One request's progress: bytes [0, position) were started, `again` holds ranges to start once more."""

    __slots__ = ("address", "again", "failed", "nbytes", "position", "request", "submission")

    def __init__(self, request: ReadRequest, address: int, submission: Submission) -> None:
        self.request = request
        self.address = address
        self.nbytes = request.destination.size
        self.submission = submission
        self.position = 0
        self.again: list[Piece] = []
        self.failed = False

    @property
    def has_more(self) -> bool:
        """Whether a piece of it is still to be started."""
        return not self.failed and (self.position < self.nbytes or bool(self.again))


class Piece:
    """`nbytes` bytes from byte `start` of a read, in flight with the urgency of `priority`."""

    __slots__ = ("attempts", "nbytes", "priority", "read", "start")

    def __init__(self, read: Read, start: int, nbytes: int, priority: Priority, attempts: int = 0) -> None:
        self.read = read
        self.start = start
        self.nbytes = nbytes
        self.priority = priority
        self.attempts = attempts

    @property
    def offset(self) -> int:
        """Where in the file it begins."""
        return self.read.request.offset + self.start

    @property
    def address(self) -> int:
        """Where in memory it goes."""
        return self.read.address + self.start


class PieceQueue:
    """Pieces of at most `split_bytes` bytes, at most `queue_depth` of them started at a time.

    `started` holds the pieces in flight by their numbers; `next_number` is the number of the next one.
    """

    def __init__(self, split_bytes: int, queue_depth: int) -> None:
        if not 4096 <= split_bytes <= MAX_SPLIT_BYTES or split_bytes % 4096:
            raise UsageError(
                f"pieces of {split_bytes} bytes were asked for",
                hint=f"use a multiple of 4096 up to {MAX_SPLIT_BYTES}",
            )
        if not 1 <= queue_depth <= 4096:
            raise UsageError(f"a queue depth of {queue_depth} was asked for", hint="use 1 to 4096")
        self.statistics = ReaderStatistics(bytes_by_priority={p.name.lower(): 0 for p in Priority})
        self.started: dict[int, Piece] = {}
        self._split = split_bytes
        self._depth = queue_depth
        self._guess_places = {
            priority: max(1, int(share * queue_depth)) for priority, share in GUESS_SHARES.items()
        }
        self._waiting: tuple[deque[Read], ...] = tuple(deque() for _ in Priority)
        self.next_number = 0
        self._in_flight_seconds = 0.0
        self._in_flight_since = 0.0

    def push(self, requests: Sequence[ReadRequest]) -> Submission:
        """Puts `requests` at the end of their queues. UsageError, and nothing queued, if one is wrong."""
        submission = Submission()
        self._queue([Read(request, checked_address(request), submission) for request in requests])
        return submission

    def push_each(self, requests: Sequence[ReadRequest]) -> list[Submission]:
        """As `push`, with a submission for each request."""
        reads = [Read(request, checked_address(request), Submission()) for request in requests]
        self._queue(reads)
        return [read.submission for read in reads]

    def _queue(self, reads: Sequence[Read]) -> None:
        for read in reads:
            if read.nbytes:
                read.submission.pending[read] = None
            self._waiting[read.request.priority].append(read)
        self.statistics.requests += len(reads)

    def promote(self, submission: Submission) -> None:
        """Serves what is left of `submission` as demand: somebody waits for it."""
        for read in sorted(submission.pending, key=lambda read: read.request.priority):
            if read.has_more and read.request.priority > Priority.DEMAND:
                self._waiting[Priority.DEMAND].append(read)

    def withdraw(self, submission: Submission) -> bool:
        """Takes `submission` back if no piece of it was ever started; whether it was."""
        reads = list(submission.pending)
        if not reads or any(read.position or read.again or read.failed for read in reads):
            return False
        if any(piece.read.submission is submission for piece in self.started.values()):
            return False
        for read in reads:
            read.failed = True  # `peek` passes over it
        submission.pending.clear()
        return True

    def peek(self) -> Piece | None:
        """The piece to start next; None if nothing waits or there is no room."""
        if len(self.started) >= self._depth:
            return None
        for priority, waiting in zip(Priority, self._waiting, strict=True):
            while waiting:
                read = waiting[0]
                if not read.has_more:
                    waiting.popleft()
                elif priority in GUESS_SHARES and not self._has_room_for_guess(priority):
                    return None
                elif read.again:
                    piece = read.again[-1]
                    return Piece(read, piece.start, piece.nbytes, priority, piece.attempts)
                else:
                    return Piece(read, read.position, min(self._split, read.nbytes - read.position), priority)
        return None

    @property
    def in_flight_seconds(self) -> float:
        """Seconds in which at least one piece was in flight."""
        return self._in_flight_seconds + (
            time.perf_counter() - self._in_flight_since if self.started else 0.0
        )

    def start(self, piece: Piece) -> int:
        """Records that `piece`, just peeked, is in flight; its number, counted from zero without gaps."""
        number = self.next_number
        if not self.started:
            self._in_flight_since = time.perf_counter()
        self.started[number] = piece  # overwrites what an interruption here left behind
        self.next_number = number + 1
        read = piece.read
        if read.again:
            read.again.pop()
        else:
            read.position = piece.start + piece.nbytes
        return number

    def complete(self, number: int, result: int) -> Submission | None:
        """Takes the result of piece `number`: bytes moved, or -errno. Its submission, if that is done now.

        A number that is not in flight is ignored: its result was processed before.
        """
        piece = self.started.get(number)
        if piece is None:
            return None
        if result > 0:
            self._moved(piece, result)
        elif result == 0:
            self._fail(piece, _end_of_file(piece))
        elif result in (-errno.EAGAIN, -errno.EINTR) and piece.attempts < MAX_ATTEMPTS:
            self.statistics.retries += 1
            self._again(piece, piece.start, piece.attempts + 1)
        else:
            self._fail(piece, _read_error(piece, -result))
        read = piece.read
        if not read.has_more and not self._has_started(read, number):
            read.submission.pending.pop(read, None)
        if len(self.started) == 1:
            self._in_flight_seconds = self.in_flight_seconds
        self.started.pop(number, None)
        return read.submission if read.submission.done else None

    def _moved(self, piece: Piece, nbytes: int) -> None:
        request = piece.read.request
        if nbytes < piece.nbytes:
            self.statistics.short_reads += 1
            # a direct read that stops between two blocks met the end of the file; what it got of the last
            # block cannot be continued, only read again
            nbytes -= nbytes % request.file.direct.offset_align
            if nbytes == 0:
                self._fail(piece, _end_of_file(piece))
                return
            self._again(piece, piece.start + nbytes, 0)
        self.statistics.pieces += 1
        self.statistics.bytes_read += nbytes
        self.statistics.bytes_by_priority[request.priority.name.lower()] += nbytes

    def _again(self, piece: Piece, start: int, attempts: int) -> None:
        rest = Piece(piece.read, start, piece.start + piece.nbytes - start, piece.priority, attempts)
        piece.read.again.append(rest)
        self._waiting[piece.priority].appendleft(piece.read)

    def _fail(self, piece: Piece, error: UringinferError) -> None:
        self.statistics.errors += 1
        piece.read.failed = True
        if piece.read.submission.error is None:
            piece.read.submission.error = error

    def _has_started(self, read: Read, except_number: int) -> bool:
        # a number that was not counted up belongs to a start that was interrupted
        return any(
            piece.read is read and number != except_number and number < self.next_number
            for number, piece in self.started.items()
        )

    def _has_room_for_guess(self, priority: Priority) -> bool:
        # a drive shares its rate among the reads in flight: what somebody waits for is to have all of it
        in_flight = [piece.priority for piece in self.started.values()]
        guesses = sum(other in GUESS_SHARES for other in in_flight)
        return Priority.DEMAND not in in_flight and guesses < self._guess_places[priority]


def checked_address(request: ReadRequest) -> int:
    """The address of `request`'s destination; UsageError if the request breaks the contract."""
    file, destination = request.file, request.destination
    if destination.dtype != np.uint8 or not destination.flags.c_contiguous or not destination.flags.writeable:
        raise UsageError(
            f"{file.path}: cannot read into an array of {destination.dtype}, strides {destination.strides}",
            hint="use a contiguous, writable array of uint8",
        )
    if request.offset < 0 or file.fd < 0:
        what = "the file is closed" if file.fd < 0 else f"offset {request.offset}"
        raise UsageError(f"{file.path}: cannot read: {what}", hint="read open files, from offset 0 on")
    # numpy's own `ctypes` takes several times as long
    address: int = destination.__array_interface__["data"][0]
    if file.direct.is_direct and destination.size:
        _check_aligned(file.path, "offset", request.offset, file.direct.offset_align)
        _check_aligned(file.path, "length", destination.size, file.direct.offset_align)
        _check_aligned(file.path, "memory address", address, file.direct.mem_align)
    return address


def _check_aligned(path: os.PathLike[str], what: str, value: int, alignment: int) -> None:
    if value % alignment:
        raise UsageError(
            f"{path}: {what} {value} of a direct read is a multiple of {value & -value}, not of {alignment}",
            hint=f"align it to {alignment} bytes, or open the file without direct I/O",
        )


def _end_of_file(piece: Piece) -> IntegrityError:
    request = piece.read.request
    return IntegrityError(
        f"{request.file.path}: the file ends before byte {piece.offset + piece.nbytes}, inside a read of "
        f"{piece.read.nbytes} bytes from offset {request.offset}",
        hint="it is truncated: get it or pack it again",
    )


def _read_error(piece: Piece, number: int) -> IntegrityError:
    file = piece.read.request.file
    if number == errno.EINVAL and file.direct.is_direct:
        hint = (
            f"it was aligned to {file.direct.offset_align} bytes, memory to {file.direct.mem_align}: if the "
            "file system asks for more, open the file without direct I/O"
        )
    else:
        hint = "look at the kernel's log (dmesg) and at the drive's health (smartctl)"
    return IntegrityError(
        f"{file.path}: a read of {piece.nbytes} bytes at offset {piece.offset} failed: "
        f"{os.strerror(number)} ({errno.errorcode.get(number, number)})",
        hint=hint,
    )


def own_submission(ticket: Ticket) -> Submission:
    """`ticket` as what `PieceQueue.push` made; UsageError if something else did."""
    if not isinstance(ticket, Submission):
        raise UsageError(f"{ticket!r} is no ticket of this reader", hint="pass what submit returned")
    return ticket
