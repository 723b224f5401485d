"""The ring: segments that do not fit stream through a few slots of memory, in a fixed cyclic order.

The ring knows segments, slots and a reader; it does not know which tensors are inside or which layer runs.
Item number c of the endless sequence (the order of execution, over and over) always goes to slot c mod R, so
nothing has to be searched, and reads for the next pass start while the last one still computes.

A slot goes through: read submitted -> bytes there -> leased -> released -> next read submitted. The read
that overwrites a slot is submitted by the release of its lease and by nothing else; that is what makes it
impossible to compute on bytes that are being replaced. A ring of one slot reads synchronously: its only
slot is the one being computed, so there is nothing that could be read ahead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from uringinfer.container.manifest import Segment
from uringinfer.errors import IntegrityError, ResidencyError
from uringinfer.residency.checker import ReadChecker
from uringinfer.residency.lease import POISON, Lease, Slot
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.reader import Bytes, Priority, Reader, ReadRequest, Ticket


def check_segment(checker: ReadChecker, segment: Segment, request: ReadRequest, slot: Slot) -> None:
    """Checks what `request` brought into `slot`. Raises IntegrityError naming the segment."""
    started, slot.check = slot.check, None
    checker.confirm(f"segment '{segment.name}' of the trunk", request, segment.crc32, started)


class SegmentRing:
    """Streams `segments` of `file` cyclically through `slots`, each as large as the largest segment.

    `checker` checks a segment when it has arrived and before it is leased. `poison` overwrites a slot as soon
    as its lease is over, so that a view which outlives its slot gives NaN instead of stale weights.
    """

    def __init__(
        self,
        reader: Reader,
        file: StorageFile,
        segments: Sequence[Segment],
        slots: Sequence[Bytes],
        *,
        checker: ReadChecker | None = None,
        poison: bool = False,
    ) -> None:
        largest = max((segment.nbytes for segment in segments), default=0)
        if segments and not slots:
            raise ResidencyError(f"{len(segments)} segments must stream and the ring has no slot")
        if any(slot.size < largest for slot in slots):
            raise ResidencyError(f"a slot is smaller than the largest streamed segment, {largest} bytes")
        self._reader = reader
        self._file = file
        self._segments = tuple(segments)
        self._slots = [Slot(memory) for memory in slots]
        self._checker = checker
        self.is_early = checker is not None and checker.hands_over(largest)
        """Whether `poll` has anything to do: whether segments are so large that they are checked ahead."""
        self._poison = poison
        self._taken = 0
        self.wait_seconds = 0.0

    @property
    def overlaps(self) -> bool:
        """Whether one segment is read while another is computed."""
        return len(self._slots) > 1 and self._reader.overlaps

    def start(self) -> None:
        """Submits the first reads, one for each slot."""
        if self._segments and len(self._slots) > 1:
            for number in range(len(self._slots)):
                self._submit(number)

    def take(self) -> Lease:
        """The next segment in order; waits until its bytes are there.

        Raises IntegrityError if its read failed or its bytes are wrong, ResidencyError if its slot is still
        leased.
        """
        number = self._taken
        segment = self._segments[number % len(self._segments)]
        slot = self._slots[number % len(self._slots)]
        if slot.leased:
            raise ResidencyError(f"segment '{segment.name}' was asked for while its slot is in use")
        ticket = slot.ticket if slot.ticket is not None else self._submit(number)
        if ticket.done:
            self._reader.wait(ticket)  # returns at once, or raises what went wrong
        else:
            began = time.perf_counter()
            self._reader.wait(ticket)
            self.wait_seconds += time.perf_counter() - began
        if self._checker is not None:
            check_segment(self._checker, segment, self._request(segment, slot), slot)
        slot.ticket = None
        self._taken += 1
        return Lease(segment.name, slot, segment.nbytes, lambda: self._recycle(number))

    def poll(self) -> None:
        """Begins to check what has arrived while something else is computed."""
        if self._checker is None:
            return
        for number in range(self._taken, self._taken + len(self._slots)):
            slot = self._slots[number % len(self._slots)]
            if slot.ticket is not None and slot.ticket.done and slot.check is None:
                segment = self._segments[number % len(self._segments)]
                slot.check = self._checker.start(slot.memory[: segment.nbytes])

    def restart(self) -> None:
        """Goes back to the first segment, after a pass was abandoned; leases still open are over."""
        self.drain()
        self._taken = 0
        self.start()

    def drain(self) -> None:
        """Waits for the reads in flight and forgets them: nothing writes to the slots after this."""
        for slot in self._slots:
            if slot.ticket is not None:
                # Nobody will use these bytes. If the fault persists, the read that somebody needs names it.
                with contextlib.suppress(IntegrityError):
                    self._reader.wait(slot.ticket)
                slot.ticket = None
            if slot.check is not None:
                slot.check.result()
                slot.check = None
            if slot.leased:
                slot.expire()

    def close(self) -> None:
        """Waits for the reads in flight and lets go of the slots."""
        self.drain()
        self._slots.clear()

    def _submit(self, number: int) -> Ticket:
        segment = self._segments[number % len(self._segments)]
        slot = self._slots[number % len(self._slots)]
        slot.ticket = self._reader.submit([self._request(segment, slot)])
        return slot.ticket

    def _request(self, segment: Segment, slot: Slot) -> ReadRequest:
        return ReadRequest(self._file, segment.offset, slot.memory[: segment.nbytes], Priority.TRUNK)

    def _recycle(self, number: int) -> None:
        if self._poison:
            self._slots[number % len(self._slots)].memory.fill(POISON)
        if len(self._slots) > 1:
            self._submit(number + len(self._slots))
