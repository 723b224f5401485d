"""A reader on threads: where io_uring is missing or denied, `os.preadv` does the same work.

Each of `queue_depth` threads moves one piece at a time; a pread releases the interpreter's lock, so they
overlap each other and the caller. One lock guards the queue. Only the threads process results, so an
interrupted caller leaves nothing half done.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence

from uringinfer.errors import UsageError
from uringinfer.storage.contract import Priority, ReaderStatistics, ReadRequest, Ticket
from uringinfer.storage.pieces import Piece, PieceQueue, own_submission

Preadv = Callable[[int, list[memoryview], int], int]


class PreadvReader:
    """Reads with `queue_depth` threads; see `contract.Reader` for the contract. `preadv` is `os.preadv`."""

    name = "preadv"
    overlaps = True

    def __init__(
        self, *, queue_depth: int, split_bytes: int, notes: Sequence[str] = (), preadv: Preadv = os.preadv
    ) -> None:
        self.notes = list(notes)
        self._preadv = preadv
        self._queue = PieceQueue(split_bytes, queue_depth)
        self._closed = False
        lock = threading.Lock()
        self._work_came = threading.Condition(lock)
        self._ticket_done = threading.Condition(lock)
        self._wait_seconds = 0.0
        self._threads = [
            threading.Thread(target=self._work, name=f"preadv-{i}", daemon=True) for i in range(queue_depth)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, requests: Sequence[ReadRequest]) -> Ticket:
        with self._work_came:
            if self._closed:
                raise UsageError("the reader is closed", hint="submit before close")
            submission = self._queue.push(requests)
            self._work_came.notify_all()
        return submission

    def submit_each(self, requests: Sequence[ReadRequest]) -> Sequence[Ticket]:
        with self._work_came:
            if self._closed:
                raise UsageError("the reader is closed", hint="submit before close")
            submissions = self._queue.push_each(requests)
            self._work_came.notify_all()
        return submissions

    def wait(self, ticket: Ticket) -> None:
        submission = own_submission(ticket)
        if not submission.done:
            began = time.perf_counter()
            try:
                with self._ticket_done:
                    self._queue.promote(submission)
                    self._work_came.notify_all()
                    while not submission.done:
                        if self._closed:
                            raise UsageError(
                                "the reader was closed before this read", hint="wait, then close"
                            )
                        self._ticket_done.wait()
            finally:
                self._wait_seconds += time.perf_counter() - began
        if submission.error is not None:
            raise submission.error

    def promote(self, tickets: Sequence[Ticket]) -> None:
        with self._work_came:
            for ticket in tickets:
                self._queue.promote(own_submission(ticket))
            self._work_came.notify_all()

    def withdraw(self, ticket: Ticket) -> bool:
        with self._work_came:
            return self._queue.withdraw(own_submission(ticket))

    def poll(self) -> None:
        """Nothing to do: the threads take what has completed and start what waits."""

    def statistics(self) -> ReaderStatistics:
        with self._work_came:
            counters = self._queue.statistics
            return dataclasses.replace(
                counters,
                wait_seconds=self._wait_seconds,
                in_flight_seconds=self._queue.in_flight_seconds,
                bytes_by_priority=dict(counters.bytes_by_priority),
            )

    def close(self) -> None:
        with self._work_came:
            self._closed = True
            self._work_came.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._work_came:
                while (piece := self._queue.peek()) is None and not self._closed:
                    self._work_came.wait()
                if piece is None or self._closed:
                    return
                number = self._queue.start(piece)
            result = self._move(piece)
            with self._work_came:
                if self._queue.complete(number, result):
                    self._ticket_done.notify_all()
                if piece.priority == Priority.DEMAND:  # threads that must not speculate beside it sleep
                    self._work_came.notify_all()

    def _move(self, piece: Piece) -> int:
        """Bytes moved, or -errno."""
        request = piece.read.request
        destination = request.destination.data[piece.start : piece.start + piece.nbytes]
        try:
            return self._preadv(request.file.fd, [destination], piece.offset)
        except OSError as error:
            return -(error.errno or errno.EIO)
