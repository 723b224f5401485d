"""A reader whose completions are scripted, and small trunks on disk. For tests of the residency room."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from uringinfer.container.manifest import ALIGNMENT, Segment, TensorPart
from uringinfer.errors import IntegrityError
from uringinfer.kernels import open_kernels
from uringinfer.kernels.float_formats import F32
from uringinfer.residency.trunk import Trunk, TrunkMemory
from uringinfer.storage.direct import Direct, StorageFile
from uringinfer.storage.reader import ReaderStatistics, ReadRequest

GARBAGE = 0xEE
"""What the scripted reader puts into a destination at submit: whoever looks before `wait` sees it."""


@dataclass
class ScriptedTicket:
    requests: Sequence[ReadRequest]
    done: bool = False
    error: Exception | None = None


@dataclass
class ScriptedReader:
    """Completes a ticket when it is waited for, not before; with `eager`, at the next poll or wait.

    Reads of an offset in `failing` fail. Each read of an offset in `corrupting` takes the next of its numbers
    and flips these bits of its first byte, as long as there are any. `events` lists ("submit" | "wait",
    offset of the first request).
    """

    eager: bool = False
    failing: set[int] = field(default_factory=set)
    corrupting: dict[int, list[int]] = field(default_factory=dict)
    name: str = "scripted"
    overlaps: bool = True
    notes: list[str] = field(default_factory=list)
    events: list[tuple[str, int]] = field(default_factory=list)
    requests: list[ReadRequest] = field(default_factory=list)
    open_tickets: list[ScriptedTicket] = field(default_factory=list)
    batches: list[list[ReadRequest]] = field(default_factory=list)
    """What each `submit_each` got."""
    begun: set[int] = field(default_factory=set)
    """Offsets of reads that cannot be withdrawn any more."""
    withdrawn: list[int] = field(default_factory=list)
    promoted: list[int] = field(default_factory=list)
    polls: int = 0

    def submit(self, requests: Sequence[ReadRequest]) -> ScriptedTicket:
        ticket = ScriptedTicket(requests)
        for request in requests:
            request.destination.fill(GARBAGE)
        self.events.append(("submit", requests[0].offset))
        self.requests.extend(requests)
        self.open_tickets.append(ticket)
        return ticket

    def submit_each(self, requests: Sequence[ReadRequest]) -> list[ScriptedTicket]:
        if requests:
            self.batches.append(list(requests))
        return [self.submit([request]) for request in requests]

    def complete(self, offset: int) -> None:
        """Lets the read at `offset` arrive."""
        for ticket in list(self.open_tickets):
            if ticket.requests[0].offset == offset:
                self._complete(ticket)

    def wait(self, ticket: ScriptedTicket) -> None:
        self.events.append(("wait", ticket.requests[0].offset))
        self._complete(ticket)
        if ticket.error is not None:
            raise ticket.error

    def promote(self, tickets: Sequence[ScriptedTicket]) -> None:
        self.promoted += [ticket.requests[0].offset for ticket in tickets]

    def withdraw(self, ticket: ScriptedTicket) -> bool:
        """Nothing has begun but what `begun` says."""
        if ticket.done or ticket.requests[0].offset in self.begun:
            return False
        self.open_tickets = [other for other in self.open_tickets if other is not ticket]
        ticket.done = True
        self.withdrawn.append(ticket.requests[0].offset)
        return True

    def poll(self) -> None:
        self.polls += 1
        if self.eager:
            for ticket in list(self.open_tickets):
                self._complete(ticket)

    def statistics(self) -> ReaderStatistics:
        return ReaderStatistics(requests=len(self.requests))

    def close(self) -> None:
        for ticket in list(self.open_tickets):
            self._complete(ticket)

    def _complete(self, ticket: ScriptedTicket) -> None:
        if ticket.done:
            return
        for request in ticket.requests:
            if request.offset in self.failing:
                ticket.error = IntegrityError(f"reading {request.offset} failed as scripted")
            else:
                data = os.pread(request.file.fd, request.destination.size, request.offset)
                request.destination[:] = np.frombuffer(data, np.uint8)
                if self.corrupting.get(request.offset):
                    request.destination[0] ^= self.corrupting[request.offset].pop(0)
        ticket.done = True
        self.open_tickets.remove(ticket)

    @property
    def in_flight(self) -> list[int]:
        """Offsets of what is submitted and not complete."""
        return [request.offset for ticket in self.open_tickets for request in ticket.requests]


def write_trunk(
    directory: Path,
    groups: Sequence[Sequence[tuple[str, np.ndarray]]],
    *,
    panel_rows: int = 0,
    table: str = "",
) -> tuple[list[Segment], StorageFile]:
    """Writes float32 tensors, one segment for each group, as trunk.bin -> its segments, and the open file.

    With `panel_rows`, a group of one matrix with more rows is cut into segments of so many rows. The tensor
    called `table` is not streamed.
    """
    segments: list[Segment] = []
    path = directory / "trunk.bin"
    with path.open("wb") as file:
        for tensors in groups:
            rows = tensors[0][1].shape[0]
            cut = panel_rows if panel_rows and len(tensors) == 1 and rows > panel_rows else rows
            for start in range(0, rows, cut):
                offset, parts = file.tell(), []
                for name, value in tensors:
                    own_rows = value.shape[0]
                    low, high = (start, min(start + cut, rows)) if cut < rows else (0, own_rows)
                    data = value.reshape(own_rows, -1)[low:high].astype(np.float32).tobytes()
                    file.write(bytes(-file.tell() % 64))
                    position = file.tell() - offset
                    parts.append(TensorPart(name, F32, value.shape, low, high, position, len(data)))
                    file.write(data)
                file.write(bytes(-file.tell() % ALIGNMENT))
                streamed = tensors[0][0] != table
                name = f"{tensors[0][0]}/{start}"
                nbytes = file.tell() - offset
                file.flush()
                checksum = zlib.crc32(path.read_bytes()[offset:])
                segments.append(Segment(name, "group", offset, nbytes, checksum, streamed, tuple(parts)))
    fd = os.open(path, os.O_RDONLY)
    direct = Direct(False, "a test's file", 1, 512)
    return segments, StorageFile(path, fd, path.stat().st_size, direct)


def build_trunk(
    segments: Sequence[Segment],
    file: StorageFile,
    reader: object,
    *,
    pinned: Sequence[int] = (),
    slots: int = 2,
    staging: int = 1 << 16,
    **options: object,
) -> Trunk:
    """A trunk over numpy kernels with this many ring slots, loaded."""
    streaming = [s.nbytes for n, s in enumerate(segments) if s.streamed and n not in pinned]
    memory = TrunkMemory(
        pinned={number: np.zeros(segments[number].nbytes, np.uint8) for number in pinned},
        slots=[np.zeros(max(streaming), np.uint8) for _ in range(slots if streaming else 0)],
        staging=np.zeros(staging, np.uint8),
    )
    trunk = Trunk(segments, file, reader, open_kernels(native=False), memory, **options)
    trunk.load()
    return trunk
