"""What a reader is.

A `Reader` moves bytes from files into memory, many requests at once, and knows nothing of what they mean.
Two implementations keep the same contract: `uring.UringReader` and `preadv.PreadvReader`.

Invariants of the contract:
- A request is complete only when all of its bytes are there; short reads are continued inside the reader.
- Requests are split into pieces of at most `split_bytes`; at most `queue_depth` pieces are in flight.
- Pieces start in order of priority, then of submission. Guesses never delay demand: while anything more
  urgent waits or demand is in flight, no piece of a guess starts. Guesses hold at most their share of the
  places in flight (`GUESS_SHARES`). What somebody waits for is demand, whatever it was submitted as.
- The destination belongs to the reader from `submit` until the ticket is done.
- A failed read raises IntegrityError from `wait`, naming file, offset, length and cause; end of file too.
- A reader belongs to the thread that made it.
- KeyboardInterrupt may come at any moment; afterwards the reader goes on, and a ticket can be waited for
  again.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.storage.direct import StorageFile

Bytes = NDArray[np.uint8]
ReaderKind = Literal["auto", "uring", "preadv"]

DEFAULT_QUEUE_DEPTH = 8
DEFAULT_SPLIT_BYTES = 2 << 20


class Priority(enum.IntEnum):
    """Order of service; a smaller number goes first."""

    DEMAND = 0
    TRUNK = 1
    EXPECTED = 2
    """A guess that is nearly sure."""
    SPECULATION = 3


GUESS_SHARES = {Priority.EXPECTED: 1 / 2, Priority.SPECULATION: 1 / 4}
"""Share of the places in flight up to which guesses of each kind start. What has not begun can be taken back
when more is known, so mere speculation only keeps a drive busy."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Read `len(destination)` bytes of `file` from `offset` into `destination`.

    For a direct file, offset, length and the address of `destination` (uint8 [nbytes], contiguous, usually a
    region of the arena) must keep the file's alignments; the reader raises UsageError if they do not.
    """

    file: StorageFile
    offset: int
    destination: Bytes
    priority: Priority = Priority.TRUNK


class Ticket(Protocol):
    """One submission's progress. `done` turns true once every request of it is complete or has failed."""

    @property
    def done(self) -> bool: ...


@dataclass(slots=True)
class ReaderStatistics:
    """Counters since the reader was made; bytes and seconds.

    `bytes_by_priority` has the keys "demand", "trunk", "expected" and "speculation". In `wait_seconds`
    somebody waited for a read, in `in_flight_seconds` at least one was in flight, as far as the reader has
    been asked: on io_uring a read that is over counts until the next call.
    """

    requests: int = 0
    pieces: int = 0
    bytes_read: int = 0
    short_reads: int = 0
    retries: int = 0
    errors: int = 0
    wait_seconds: float = 0.0
    in_flight_seconds: float = 0.0
    bytes_by_priority: dict[str, int] = field(default_factory=dict)


class Reader(Protocol):
    """Moves bytes from files to memory; see the module's docstring for the contract."""

    name: str
    """'uring' or 'preadv'."""
    overlaps: bool
    """Whether reads go on while the caller computes."""
    notes: list[str]
    """What was asked for and not obtained, in words, with the remedy."""

    def submit(self, requests: Sequence[ReadRequest]) -> Ticket: ...

    def submit_each(self, requests: Sequence[ReadRequest]) -> Sequence[Ticket]:
        """One batch with a ticket for each request, for a caller that uses each as soon as it is there."""
        ...

    def wait(self, ticket: Ticket) -> None:
        """Blocks until `ticket` is done; raises its error. Ctrl-C interrupts it at once."""
        ...

    def promote(self, tickets: Sequence[Ticket]) -> None:
        """Serves what is left of `tickets` as demand from now on: somebody will wait for them soon."""
        ...

    def withdraw(self, ticket: Ticket) -> bool:
        """Takes back what nothing was started of: True, and the ticket is done, nothing was read and the
        destination is the caller's again. False if it is under way or over; then it goes on."""
        ...

    def poll(self) -> None:
        """Takes what has completed and starts what waits, without blocking. Cheap; call it often."""
        ...

    def statistics(self) -> ReaderStatistics: ...

    def close(self) -> None:
        """Waits for what is in flight (memory must not be written after it is gone), then releases."""
        ...
