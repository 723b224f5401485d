"""What a timeline makes of marks, waits and reads, on a clock that the test sets."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from uringinfer.residency.timeline import KEPT_PASSES, RecordingReader, Timeline
from uringinfer.storage.reader import Priority, ReadRequest

TRUNK, BANK = SimpleNamespace(path=Path("trunk.bin")), SimpleNamespace(path=Path("experts-L1.bin"))
MANIFEST = SimpleNamespace(
    segments=[
        SimpleNamespace(group="embedding", offset=0, nbytes=100),
        SimpleNamespace(group="layers.0", offset=100, nbytes=100),
        SimpleNamespace(group="layers.0", offset=200, nbytes=100),
        SimpleNamespace(group="layers.1", offset=300, nbytes=100),
    ],
    banks=[SimpleNamespace(layer=1, file="experts-L1.bin")],
)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class ScriptedReader:
    """A reader whose tickets are done when the test, or a wait of two seconds, says so."""

    name, overlaps = "scripted", True

    def __init__(self, clock):
        self.notes = ["a note"]
        self._clock = clock
        self.tickets = []

    def submit(self, requests):
        self.tickets.append(SimpleNamespace(done=False))
        return self.tickets[-1]

    def submit_each(self, requests):
        return [self.submit([request]) for request in requests]

    def wait(self, ticket):
        if not ticket.done:
            self._clock.now += 2.0
            ticket.done = True

    def promote(self, tickets):
        self.promoted = list(tickets)

    def withdraw(self, ticket):
        ticket.done = not ticket.done
        return ticket.done

    def poll(self):
        pass


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timeline(clock):
    return Timeline(clock)


@pytest.fixture
def reader(clock, timeline):
    return RecordingReader(ScriptedReader(clock), timeline)


def request(offset, nbytes=100, file=TRUNK, priority=Priority.TRUNK):
    return ReadRequest(file, offset, np.empty(nbytes, np.uint8), priority)


def thread_of(shown):
    return [(one.start, one.end, one.group, one.kind) for one in shown.thread]


def reads_of(shown):
    return [(one.start, one.end, one.group, one.kind, one.nbytes) for one in shown.reads]


def test_promoting_is_left_to_the_reader(clock, timeline):
    inner = ScriptedReader(clock)
    reader = RecordingReader(inner, timeline)
    tickets = reader.submit_each([request(0), request(100)])
    reader.promote(tickets[1:])
    assert inner.promoted == tickets[1:]


def test_a_read_that_was_taken_back_is_not_shown(clock, timeline, reader):
    timeline.begin_pass()
    tickets = reader.submit_each([request(0, 50, BANK), request(50, 60, BANK)])
    clock.now = 3.0
    assert reader.withdraw(tickets[0])
    reader.wait(tickets[1])
    assert not reader.withdraw(tickets[1])
    timeline.end_pass()
    assert [nbytes for *_, nbytes in reads_of(timeline.typical(MANIFEST, 1))] == [60]


def test_the_thread_computes_except_where_it_waited(clock, timeline, reader):
    clock.now = 10.0
    ahead = reader.submit([request(100)])
    clock.now = 11.0
    timeline.begin_pass()
    rows = reader.submit([request(40, 8, priority=Priority.DEMAND)])
    reader.wait(rows)
    clock.now = 14.0
    timeline.mark(1)
    reader.wait(ahead)
    clock.now = 17.0
    timeline.mark(2)
    clock.now = 18.0
    timeline.mark(3)
    clock.now = 19.0
    experts = reader.submit_each([request(0, 50, BANK, Priority.DEMAND), request(50, 50, BANK)])
    reader.wait(experts[1])
    timeline.end_pass()

    shown = timeline.typical(MANIFEST, 1)

    assert shown.seconds == 10.0
    assert thread_of(shown) == [
        (0.0, 2.0, "layers.0", "rows"),
        (2.0, 3.0, "layers.0", "computing"),
        (3.0, 5.0, "layers.0", "trunk"),
        (5.0, 7.0, "layers.0", "computing"),
        (7.0, 8.0, "layers.1", "computing"),
        (8.0, 10.0, "layers.1", "experts"),
    ]
    assert shown.groups == ["layers.0", "layers.1"]
    assert reads_of(shown) == [
        (0.0, 5.0, "layers.0", "trunk", 100),  # it began before the pass
        (0.0, 2.0, "embedding", "rows", 8),
        (8.0, 10.0, "layers.1", "experts", 50),  # still in flight at the end
        (8.0, 10.0, "layers.1", "experts", 50),
    ]


def test_a_completion_counts_when_it_is_noticed(clock, timeline, reader):
    timeline.begin_pass()
    timeline.mark(1)
    ticket = reader.submit([request(100)])
    clock.now = 1.0
    ticket.done = True
    clock.now = 1.5
    reader.poll()
    clock.now = 4.0
    timeline.end_pass()
    assert reads_of(timeline.typical(MANIFEST, 1)) == [(0.0, 1.5, "layers.0", "trunk", 100)]


def test_waiting_for_what_is_there_is_no_wait(clock, timeline, reader):
    timeline.begin_pass()
    timeline.mark(1)
    ticket = reader.submit([request(100)])
    ticket.done = True
    reader.wait(ticket)
    clock.now = 1.0
    timeline.end_pass()
    assert thread_of(timeline.typical(MANIFEST, 1)) == [(0.0, 1.0, "layers.0", "computing")]


def run_pass(clock, timeline, seconds):
    timeline.begin_pass()
    timeline.mark(1)
    clock.now += seconds
    timeline.end_pass()


def test_the_pass_of_median_duration_is_shown_of_the_last_ones_asked_for(clock, timeline):
    assert timeline.typical(MANIFEST, 5) is None
    for seconds in (50.0, 60.0, 3.0, 9.0, 1.0):
        run_pass(clock, timeline, seconds)
    assert timeline.typical(MANIFEST, 3).seconds == 3.0
    assert timeline.typical(MANIFEST, 5).seconds == 9.0
    assert timeline.typical(MANIFEST, 0) is None


def test_a_pass_that_was_abandoned_is_forgotten(clock, timeline):
    run_pass(clock, timeline, 2.0)
    timeline.begin_pass()
    clock.now += 100.0
    run_pass(clock, timeline, 4.0)
    assert timeline.typical(MANIFEST, 1).seconds == 4.0
    assert timeline.typical(MANIFEST, 2).seconds == 4.0  # the upper one of two


def test_a_long_run_keeps_only_the_last_passes_and_their_reads(clock, timeline, reader):
    for _ in range(10 * KEPT_PASSES):
        reader.wait(reader.submit([request(100)]))
        run_pass(clock, timeline, 1.0)
    assert len(timeline._passes) == KEPT_PASSES
    assert len(timeline._reads) <= KEPT_PASSES


def test_the_recording_reader_is_the_reader_it_records(reader):
    assert (reader.name, reader.overlaps, reader.notes) == ("scripted", True, ["a note"])
