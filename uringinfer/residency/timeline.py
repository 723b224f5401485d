"""What one pass over the weights did when: computing, waiting, reading.

A `Timeline` hears from two places: the trunk marks when a pass begins, when it moves to the next segment and
when it ends; `RecordingReader`, put around the real reader, marks when reads are submitted and seen complete,
and when somebody waits. Neither is there unless a recording was asked for, so a run without one pays nothing
but a comparison for each segment. Only the last passes are kept, so a long run takes no more memory.

A read counts from its submission until its completion was noticed, which is at the latest behind the product
that was being computed meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from uringinfer.container.manifest import Manifest
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.reader import Priority, Reader, ReaderStatistics, ReadRequest, Ticket

KEPT_PASSES = 8

ReadKind = Literal["trunk", "experts", "rows"]


@dataclass(slots=True)
class _Read:
    """One submission, or one request of a batch with tickets of their own; `ended` None while in flight."""

    began: float
    file: StorageFile
    offset: int
    nbytes: int
    priority: Priority
    ended: float | None = None


@dataclass(slots=True)
class _Pass:
    began: float
    ended: float | None = None
    marks: list[tuple[float, int]] = field(default_factory=list)
    waits: list[tuple[float, float, _Read]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Interval:
    """From `start` to `end`, in seconds from the beginning of the pass; `group` is the layer it was for.

    `kind` is "computing", or what was waited for or read: "trunk", "experts", "rows" (of an embedding).
    """

    start: float
    end: float
    group: str
    kind: str
    nbytes: int = 0

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class PassTimeline:
    """One pass of `seconds`: what the computing thread did, without gaps, and which reads were in flight."""

    seconds: float
    thread: tuple[Interval, ...]
    reads: tuple[Interval, ...]

    @property
    def groups(self) -> list[str]:
        """Layers in the order of execution."""
        return list(dict.fromkeys(interval.group for interval in self.thread))


class Timeline:
    """Records the last passes. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._passes: deque[_Pass] = deque(maxlen=KEPT_PASSES)
        self._reads: deque[_Read] = deque()
        self._current: _Pass | None = None

    def begin_pass(self) -> None:
        self._current = _Pass(self.clock())

    def mark(self, segment: int) -> None:
        """The computing thread asks for this segment: what follows, waiting included, is for its layer."""
        if self._current is not None:
            self._current.marks.append((self.clock(), segment))

    def end_pass(self) -> None:
        """The pass is complete; one that was abandoned never ends and is forgotten."""
        if self._current is None:
            return
        self._current.ended = self.clock()
        self._passes.append(self._current)
        self._current = None
        oldest = self._passes[0].began
        while self._reads and (self._reads[0].ended or oldest) < oldest:
            self._reads.popleft()

    def read_began(self, requests: Sequence[ReadRequest]) -> _Read:
        """`requests`, submitted as one, are on their way."""
        first = requests[0]
        nbytes = sum(request.destination.size for request in requests)
        read = _Read(self.clock(), first.file, first.offset, nbytes, first.priority)
        self._reads.append(read)
        return read

    def withdrawn(self, read: _Read) -> None:
        """`read` was taken back before it began."""
        self._reads = deque(other for other in self._reads if other is not read)

    def waited(self, began: float, read: _Read) -> None:
        """The computing thread has waited for `read` since `began`."""
        if self._current is not None:
            self._current.waits.append((began, self.clock(), read))

    def typical(self, manifest: Manifest, last: int) -> PassTimeline | None:
        """Of the `last` passes, as far as they are kept, the one of median duration; None if there is none.

        `manifest` is that of the container that was read: it says which layer a byte belongs to.
        """
        complete = sorted(
            [*self._passes][-last:] if last > 0 else [], key=lambda one: (one.ended or one.began) - one.began
        )
        if not complete:
            return None
        chosen = complete[len(complete) // 2]
        return _Describer(manifest)(chosen, self._reads)


class _Describer:
    """Turns marks, waits and reads into intervals with the names of layers."""

    def __init__(self, manifest: Manifest) -> None:
        self._segments = manifest.segments
        self._banks = {bank.file: f"layers.{bank.layer}" for bank in manifest.banks}

    def __call__(self, chosen: _Pass, reads: Sequence[_Read]) -> PassTimeline:
        began = chosen.began
        seconds = (chosen.ended or began) - began
        flights = []
        for read in reads:
            start, end = read.began - began, (read.ended or began + seconds) - began
            if end > 0 and start < seconds:
                flights.append(
                    Interval(
                        max(0.0, start), min(seconds, end), self._group(read), self._kind(read), read.nbytes
                    )
                )
        return PassTimeline(seconds, tuple(self._thread(chosen, seconds)), tuple(flights))

    def _thread(self, chosen: _Pass, seconds: float) -> list[Interval]:
        """Spans between marks, cut where the thread waited."""
        first = self._segments[chosen.marks[0][1]].group if chosen.marks else ""
        marks = [(0.0, first), *((at - chosen.began, self._segments[n].group) for at, n in chosen.marks)]
        waits = deque((start - chosen.began, end - chosen.began, read) for start, end, read in chosen.waits)
        intervals: list[Interval] = []
        for (start, group), stop in zip(marks, [at for at, _ in marks[1:]] + [seconds], strict=True):
            while waits and waits[0][0] < stop:
                wait_start, wait_end, read = waits.popleft()
                _extend(intervals, Interval(start, wait_start, group, "computing"))
                _extend(intervals, Interval(wait_start, wait_end, group, self._kind(read), read.nbytes))
                start = wait_end
            _extend(intervals, Interval(start, stop, group, "computing"))
        return intervals

    def _kind(self, read: _Read) -> ReadKind:
        if read.file.path.name in self._banks:
            return "experts"
        return "rows" if read.priority is Priority.DEMAND else "trunk"

    def _group(self, read: _Read) -> str:
        if read.file.path.name in self._banks:
            return self._banks[read.file.path.name]
        here = (s.group for s in self._segments if s.offset <= read.offset < s.offset + s.nbytes)
        return next(here, "")


def _extend(intervals: list[Interval], new: Interval) -> None:
    """Appends `new`, or lengthens the last interval if it is of the same kind and layer."""
    if new.end <= new.start:
        return
    last = intervals[-1] if intervals else None
    if last and (last.kind, last.group) == (new.kind, new.group) and last.end == new.start:
        intervals[-1] = Interval(last.start, new.end, new.group, new.kind, last.nbytes + new.nbytes)
    else:
        intervals.append(new)


class RecordingReader:
    """A reader that does what `inner` does and tells `timeline` when."""

    def __init__(self, inner: Reader, timeline: Timeline) -> None:
        self.name = inner.name
        self.overlaps = inner.overlaps
        self.notes = inner.notes
        self._inner = inner
        self._timeline = timeline
        self._in_flight: list[tuple[Ticket, _Read]] = []

    def submit(self, requests: Sequence[ReadRequest]) -> Ticket:
        read = self._timeline.read_began(requests)
        ticket = self._inner.submit(requests)
        self._in_flight.append((ticket, read))
        self._settle()
        return ticket

    def submit_each(self, requests: Sequence[ReadRequest]) -> Sequence[Ticket]:
        reads = [self._timeline.read_began([request]) for request in requests]
        tickets = self._inner.submit_each(requests)
        self._in_flight += zip(tickets, reads, strict=True)
        self._settle()
        return tickets

    def wait(self, ticket: Ticket) -> None:
        waits = not ticket.done
        began = self._timeline.clock()
        try:
            self._inner.wait(ticket)
        finally:
            if waits:
                for other, read in self._in_flight:
                    if other is ticket:
                        self._timeline.waited(began, read)
            self._settle()

    def promote(self, tickets: Sequence[Ticket]) -> None:
        self._inner.promote(tickets)

    def withdraw(self, ticket: Ticket) -> bool:
        if not self._inner.withdraw(ticket):
            return False
        for other, read in self._in_flight:
            if other is ticket:
                self._timeline.withdrawn(read)
        self._in_flight = [(other, read) for other, read in self._in_flight if other is not ticket]
        return True

    def poll(self) -> None:
        self._inner.poll()
        self._settle()

    def statistics(self) -> ReaderStatistics:
        return self._inner.statistics()

    def close(self) -> None:
        self._inner.close()

    def _settle(self) -> None:
        """Notes the time of reads that are complete."""
        open_reads = []
        for ticket, read in self._in_flight:
            if ticket.done:
                read.ended = self._timeline.clock()
            else:
                open_reads.append((ticket, read))
        self._in_flight = open_reads
