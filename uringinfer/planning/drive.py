"""A drive in a simulation: one server that works off reads by priority, as a reader's queue hands them over.

It stands for `storage.pieces`, in seconds instead of pieces. What has been handed to the drive cannot be
taken back: a more urgent read waits until that is through.
"""

from __future__ import annotations

from collections import deque

from uringinfer.storage.contract import GUESS_SHARES, Priority


class Read:
    """A read that takes the drive `seconds`, of which `left` are still to come."""

    __slots__ = ("begun", "left", "priority")

    def __init__(self, seconds: float, priority: Priority) -> None:
        self.left = seconds
        self.priority = priority
        self.begun = False
        """At least a part of it was handed to the drive."""

    @property
    def done(self) -> bool:
        return self.left <= 0.0


class Drive:
    """Serves reads. One that finds the drive idle takes `latency` seconds longer; `window` seconds of reads
    are in flight at once, of guesses their share. All times are those of one clock and never go back."""

    def __init__(self, latency: float = 0.0, window: float = 0.0) -> None:
        self._latency = latency
        self._window = window
        self._now = 0.0
        self._queues: tuple[deque[Read], ...] = tuple(deque() for _ in Priority)
        self._in_flight: deque[tuple[Read, float]] = deque()
        """Reads that something more urgent has overtaken, with the seconds that had been handed over."""

    def submit(self, now: float, seconds: float, priority: Priority) -> Read:
        """Asks at `now` for a read that takes `seconds`."""
        self.run(now)
        if not any(self._queues):
            self._now = max(self._now, now) + self._latency
        self._overtake(priority)
        read = Read(seconds, priority)
        self._queues[priority].append(read)
        return read

    def run(self, until: float) -> None:
        """Serves until the time `until`."""
        while self._now < until and (read := self._next()) is not None:
            self._serve(read, until - self._now)

    def finish(self, read: Read) -> float:
        """Serves until `read`, for which somebody waits, is done -> when that is."""
        if not read.done and read.priority != Priority.DEMAND:
            self._overtake(Priority.DEMAND)
            self._queues[read.priority].remove(read)
            read.priority = Priority.DEMAND
            self._queues[Priority.DEMAND].append(read)
        while not read.done and (served := self._next()) is not None:
            self._serve(served, served.left)
        return self._now

    def withdraw(self, now: float, read: Read) -> None:
        """Takes `read` back at `now`, unless the drive has it already."""
        self.run(now)
        room = self._window * GUESS_SHARES[read.priority]
        for queued in self._queues[read.priority]:
            if queued is read:
                if room <= 0.0 and not read.begun:
                    self._queues[read.priority].remove(read)
                return
            room -= queued.left

    def _overtake(self, priority: Priority) -> None:
        """Notes what is in flight when something of `priority` comes that goes before it."""
        if self._in_flight or any(self._queues[: priority + 1]):
            return
        for below in range(priority + 1, len(self._queues)):
            room = self._window * GUESS_SHARES.get(Priority(below), 1.0)
            for read in self._queues[below]:
                if room <= 0.0:
                    break
                self._in_flight.append((read, min(read.left, room)))
                read.begun = True
                room -= read.left
            if self._in_flight:
                return

    def _next(self) -> Read | None:
        if self._in_flight:
            return self._in_flight[0][0]
        return next((queue[0] for queue in self._queues if queue), None)

    def _serve(self, read: Read, most: float) -> None:
        """Serves `read`, which is next, for at most `most` seconds."""
        if self._in_flight:
            _, handed = self._in_flight[0]
            seconds = min(handed, most)
            self._in_flight.popleft()
            if handed > seconds:
                self._in_flight.appendleft((read, handed - seconds))
        else:
            seconds = min(read.left, most)
        self._now += seconds
        read.begun = True
        read.left = read.left - seconds if seconds < read.left else 0.0
        if read.done:
            self._queues[read.priority].remove(read)
