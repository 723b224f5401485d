"""When the drive and the processor work on what: the time of one pass over a plan, by simulation.

One drive reads the streamed units in order, one processor computes all units in order, and a slot of the
ring is free again when its unit is computed. Between units come the turns of layers with routed experts. What
a turn misses is read at once and before everything else; what is guessed of the next turn is read when
nothing else is. The processor waits for what is not there, and pays for each read that it asks for.

How many experts a turn misses varies, and a turn that misses many costs more than one that misses few saves.
So turns are drawn, evenly over the distribution and always the same ones: equal plans take equal times, and
fewer misses never more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import comb

from uringinfer.planning.drive import Drive, Read
from uringinfer.storage.contract import Priority

_SETTLING_PASSES = 3
"""The ring starts empty; after this many passes reads run ahead as far as they ever will."""
_MEASURED_PASSES = 3
_MEASURED_TURNS = 512
"""At least, where turns vary."""
_STEPS = (0.8191725134, 0.6710436067, 0.5497004779)
"""Powers of the inverse of the real root of x^4 = x + 1: multiples of them fill a cube evenly."""


@dataclass(frozen=True, slots=True)
class ExpertTurns:
    """Every pass has `count` turns of experts, evenly over its units; each uses `used` experts.

    An expert is not in memory at `absence`, 0 to 1. Guesses name the share `foreseen` of those, and `wrong`
    others a turn, on average; the first turn of a pass is not guessed about. Seconds: an expert takes
    `compute`; reading one takes the drive `read` and the processor `per_read`; guessing takes `guess` a
    turn.
    """

    count: int
    used: int
    absence: float
    compute: float
    read: float
    foreseen: float = 0.0
    wrong: float = 0.0
    guess: float = 0.0
    per_read: float = 0.0


def pass_seconds(
    unit_bytes: Sequence[int],
    pinned: Collection[int],
    ring_slots: int,
    drive_bytes_per_s: float,
    compute_bytes_per_s: float,
    turns: ExpertTurns | None = None,
    *,
    streamed_compute: float | None = None,
    latency: float = 0.0,
    in_flight_bytes: float = 0.0,
) -> float:
    """Seconds of one pass of many, with reads crossing from the end of one pass into the next.

    `unit_bytes` are in the order of execution, `pinned` their indices in memory. A ring of one slot reads
    only when its unit is due. Units that were read are computed at `streamed_compute` bytes/s, if given. A
    read that finds the drive idle takes `latency` seconds longer; one that is more urgent than others waits
    until their `in_flight_bytes` are through.
    """
    in_memory = set(pinned)
    drive = Drive(latency, in_flight_bytes / drive_bytes_per_s)
    streamed = [n / drive_bytes_per_s for index, n in enumerate(unit_bytes) if index not in in_memory]
    ring = _Ring(drive, streamed, ring_slots)
    experts = _Experts(drive, turns) if turns is not None else None
    turns_behind = _positions(turns.count if turns is not None else 0, len(unit_bytes))
    measured = _MEASURED_PASSES
    if turns is not None:
        measured = max(measured, -(-_MEASURED_TURNS // turns.count))
    now = settled = 0.0
    for number in range(_SETTLING_PASSES + measured):
        if number == _SETTLING_PASSES:
            settled = now
        for index, nbytes in enumerate(unit_bytes):
            if index in in_memory:
                now += nbytes / compute_bytes_per_s
            else:
                now = ring.take(now) + nbytes / (streamed_compute or compute_bytes_per_s)
                ring.release(now)
            for _ in range(turns_behind[index]):
                if experts is not None:
                    now = experts.take_turn(now)
    return (now - settled) / measured


def _positions(count: int, units: int) -> list[int]:
    """How many of `count` turns come behind each unit."""
    reached = [count * (index + 1) // units for index in range(units)]
    return [now - before for before, now in zip([0, *reached], reached, strict=False)]


class _Ring:
    """The reads of units that stream, `seconds` each, through `slots`, over and over."""

    def __init__(self, drive: Drive, seconds: Sequence[float], slots: int) -> None:
        self._drive = drive
        self._seconds = seconds
        self._overlaps = slots > 1
        self._next = 0
        self._coming: deque[Read] = deque()
        for _ in range(slots if seconds and self._overlaps else 0):
            self._submit(0.0)

    def take(self, now: float) -> float:
        """When the next unit is there, if it is asked for at `now`."""
        if not self._overlaps:
            self._submit(now)
        return _await(self._drive, self._coming.popleft(), now)

    def release(self, now: float) -> None:
        if self._overlaps:
            self._submit(now)

    def _submit(self, now: float) -> None:
        self._coming.append(self._drive.submit(now, self._seconds[self._next], Priority.TRUNK))
        self._next = (self._next + 1) % len(self._seconds)


class _Experts:
    """The turns of layers with experts, pass after pass."""

    def __init__(self, drive: Drive, turns: ExpertTurns) -> None:
        self._drive = drive
        self._turns = turns
        self._draws = _draws(turns)
        self._taken = 0
        self._absent, _, _ = next(self._draws)
        self._right: list[Read] = []
        self._wrong: list[Read] = []

    def take_turn(self, now: float) -> float:
        """When the next turn is over, if it begins at `now`."""
        turns, drive = self._turns, self._drive
        for read in self._wrong:
            drive.withdraw(now, read)
        drive.run(now)
        coming = [read for read in self._right if not read.done]
        demanded = self._absent - len(self._right)
        now += demanded * turns.per_read
        asked = [drive.submit(now, turns.read, Priority.DEMAND) for _ in range(demanded)]
        resident = turns.used - demanded - len(coming)
        overlaps = 0 < resident < turns.used
        if not overlaps:
            now = self._guess(now)
        now += resident * turns.compute
        if overlaps:
            now = self._guess(now)
        for read in (*asked, *coming):
            now = _await(drive, read, now) + turns.compute
        return now

    def _guess(self, now: float) -> float:
        """Asks for what is guessed of the turn behind this one -> when that is done."""
        turns = self._turns
        self._taken += 1
        self._absent, named, wrong = next(self._draws)
        self._right, self._wrong = [], []
        if self._taken % turns.count == 0:  # behind it comes the first turn of a pass
            return now
        now += turns.guess + (named + wrong) * turns.per_read
        self._right = [self._drive.submit(now, turns.read, Priority.SPECULATION) for _ in range(named)]
        self._wrong = [self._drive.submit(now, turns.read, Priority.SPECULATION) for _ in range(wrong)]
        return now


def _await(drive: Drive, read: Read, now: float) -> float:
    """When `read` is there for a processor that asks for it at `now`."""
    drive.run(now)
    return now if read.done else drive.finish(read)


def _draws(turns: ExpertTurns) -> Iterator[tuple[int, int, int]]:
    """For one turn after the other: experts not in memory, those of them that are named, wrong guesses."""
    absent = _quantiles(turns.used, turns.absence)
    named = [_quantiles(count, turns.foreseen) for count in range(turns.used + 1)]
    points = [0.5, 0.5, 0.5]
    while True:
        points = [(point + step) % 1.0 for point, step in zip(points, _STEPS, strict=True)]
        missing = _at(absent, points[0])
        yield missing, _at(named[missing], points[1]), int(turns.wrong + points[2])


def _quantiles(count: int, chance: float) -> list[float]:
    """The cumulative binomial distribution of `count` trials."""
    reached, total = [], 0.0
    for hits in range(count):
        total += comb(count, hits) * chance**hits * (1 - chance) ** (count - hits)
        reached.append(total)
    return reached


def _at(reached: Sequence[float], point: float) -> int:
    return sum(total <= point for total in reached)
