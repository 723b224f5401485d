"""The reader on threads over a scripted pread."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from interruption import interrupted_when, main_is_in, meanwhile
from numpy.typing import NDArray

from uringinfer.errors import IntegrityError, UsageError
from uringinfer.storage.direct import Direct, StorageFile
from uringinfer.storage.preadv import PreadvReader
from uringinfer.storage.reader import Priority, ReadRequest, Ticket

Bytes = NDArray[np.uint8]

BLOCK = 4096
FILE = StorageFile(Path("weights.bin"), 99, 1 << 20, Direct(False, "scripted", 1, 1))


class ScriptedPread:
    """Moves bytes of `content`; `script` says how many of (offset, length), or raises. Holds while closed."""

    def __init__(
        self, content: Bytes, script: Callable[[int, int], int] = lambda offset, length: length
    ) -> None:
        self.content = content
        self.script = script
        self.offsets: list[int] = []
        self.open = threading.Event()
        self.open.set()
        self.called = threading.Event()
        self.running = self.most_running = 0
        self._lock = threading.Lock()

    def __call__(self, fd: int, buffers: list[memoryview], offset: int) -> int:
        with self._lock:
            self.offsets.append(offset)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        self.called.set()
        self.open.wait(60)
        with self._lock:
            self.running -= 1
        count = self.script(offset, len(buffers[0]))
        buffers[0][:count] = self.content[offset : offset + count].data
        return count


def open_scripted(pread: ScriptedPread, queue_depth: int = 1) -> PreadvReader:
    return PreadvReader(queue_depth=queue_depth, split_bytes=BLOCK, preadv=pread)


def failing(number: int, times: int) -> Callable[[int, int], int]:
    """A script whose first `times` calls fail with errno `number`."""
    calls = iter(range(times))

    def script(offset: int, length: int) -> int:
        if next(calls, None) is not None:
            raise OSError(number, os.strerror(number))
        return length

    return script


def test_a_short_read_goes_on_where_it_stopped(content: Bytes) -> None:
    pread = ScriptedPread(content, lambda offset, length: min(length, 3000))
    destination = np.zeros(2 * BLOCK, np.uint8)
    reader = open_scripted(pread)
    reader.wait(reader.submit([ReadRequest(FILE, 0, destination)]))
    reader.close()
    assert np.array_equal(destination, content[: 2 * BLOCK])
    assert pread.offsets == [0, 3000, 4096, 7096]


@pytest.mark.parametrize("number", [errno.EINTR, errno.EAGAIN])
def test_a_read_that_was_put_off_is_tried_again(content: Bytes, number: int) -> None:
    reader = open_scripted(ScriptedPread(content, failing(number, times=3)))
    destination = np.zeros(BLOCK, np.uint8)
    reader.wait(reader.submit([ReadRequest(FILE, 0, destination)]))
    reader.close()
    assert np.array_equal(destination, content[:BLOCK])
    assert reader.statistics().retries == 3


def test_an_input_output_error_names_file_offset_length_and_cause(content: Bytes) -> None:
    reader = open_scripted(ScriptedPread(content, failing(errno.EIO, times=1)))
    ticket = reader.submit([ReadRequest(FILE, BLOCK, np.zeros(BLOCK, np.uint8))])
    with pytest.raises(
        IntegrityError, match=r"weights\.bin: a read of 4096 bytes at offset 4096 failed: .*EIO"
    ):
        reader.wait(ticket)
    reader.close()


def test_no_bytes_mean_the_end_of_the_file(content: Bytes) -> None:
    reader = open_scripted(ScriptedPread(content, lambda offset, length: 0))
    ticket = reader.submit([ReadRequest(FILE, 0, np.zeros(BLOCK, np.uint8))])
    with pytest.raises(IntegrityError, match="the file ends before byte 4096"):
        reader.wait(ticket)
    reader.close()


def test_demand_goes_before_the_trunk_and_the_trunk_before_speculation(content: Bytes) -> None:
    pread = ScriptedPread(content)
    pread.open.clear()
    reader = open_scripted(pread)
    first = reader.submit([ReadRequest(FILE, 0, np.zeros(BLOCK, np.uint8))])
    pread.called.wait(60)
    tickets = [
        reader.submit([ReadRequest(FILE, block * BLOCK, np.zeros(2 * BLOCK, np.uint8), priority)])
        for block, priority in [(10, Priority.SPECULATION), (20, Priority.TRUNK), (30, Priority.DEMAND)]
    ]
    pread.open.set()
    for ticket in [first, *reversed(tickets)]:
        reader.wait(ticket)
    reader.close()
    assert [offset // BLOCK for offset in pread.offsets] == [0, 30, 31, 20, 21, 10, 11]


def test_when_the_demand_is_served_several_threads_go_on_with_speculation(content: Bytes) -> None:
    together = threading.Barrier(3)

    def script(offset: int, length: int) -> int:
        if offset >= 10 * BLOCK:
            together.wait(60)
        return length

    pread = ScriptedPread(content, script)
    pread.open.clear()
    reader = open_scripted(pread, queue_depth=8)
    demand = reader.submit([ReadRequest(FILE, 0, np.zeros(BLOCK, np.uint8), Priority.DEMAND)])
    guess = reader.submit(
        [ReadRequest(FILE, 10 * BLOCK, np.zeros(2 * BLOCK, np.uint8), Priority.SPECULATION)]
    )
    pread.called.wait(60)
    pread.open.set()
    together.wait(60)  # breaks unless two threads read the guess at once, though nobody waits for it
    reader.wait(demand)
    reader.wait(guess)
    reader.close()


def held_at_a_guess_behind_the_trunk(pread: ScriptedPread) -> tuple[PreadvReader, Ticket, Ticket]:
    """The first of three blocks of the trunk is being read, and a guess waits; nothing moves until `open`."""
    pread.open.clear()
    reader = open_scripted(pread)
    trunk = reader.submit([ReadRequest(FILE, 0, np.zeros(3 * BLOCK, np.uint8))])
    pread.called.wait(60)
    guess = reader.submit([ReadRequest(FILE, 10 * BLOCK, np.zeros(BLOCK, np.uint8), Priority.SPECULATION)])
    return reader, trunk, guess


def test_speculation_that_is_waited_for_becomes_demand(content: Bytes) -> None:
    pread = ScriptedPread(content)
    reader, trunk, guess = held_at_a_guess_behind_the_trunk(pread)
    with meanwhile(lambda: main_is_in(PreadvReader.wait, threading.Condition.wait), pread.open.set):
        reader.wait(guess)
    reader.wait(trunk)
    reader.close()
    assert [offset // BLOCK for offset in pread.offsets] == [0, 10, 1, 2]


def test_promoted_speculation_goes_before_the_trunk(content: Bytes) -> None:
    pread = ScriptedPread(content)
    reader, trunk, guess = held_at_a_guess_behind_the_trunk(pread)
    reader.promote([guess])
    pread.open.set()
    reader.wait(trunk)
    reader.wait(guess)
    reader.close()
    assert [offset // BLOCK for offset in pread.offsets] == [0, 10, 1, 2]


def test_a_ticket_is_done_only_when_all_of_its_reads_are(content: Bytes) -> None:
    pread = ScriptedPread(content)
    reader = open_scripted(pread)
    destination = np.zeros(2 * BLOCK, np.uint8)
    pread.open.clear()
    ticket = reader.submit([ReadRequest(FILE, 0, destination)])
    pread.called.wait(60)
    assert not ticket.done
    pread.open.set()
    reader.wait(ticket)
    assert ticket.done
    assert np.array_equal(destination, content[: 2 * BLOCK])
    reader.close()


def test_each_thread_moves_one_piece_at_a_time(content: Bytes) -> None:
    pread = ScriptedPread(content)
    reader = open_scripted(pread, queue_depth=3)
    reader.wait(reader.submit([ReadRequest(FILE, 0, np.zeros(100 * BLOCK, np.uint8))]))
    reader.close()
    assert 1 <= pread.most_running <= 3


def test_ctrl_c_reaches_a_wait_for_a_drive_that_does_not_answer(content: Bytes) -> None:
    pread = ScriptedPread(content)
    pread.open.clear()
    reader = open_scripted(pread)
    destination = np.zeros(BLOCK, np.uint8)
    ticket = reader.submit([ReadRequest(FILE, 0, destination)])
    with interrupted_when(lambda: main_is_in(PreadvReader.wait, threading.Condition.wait)):
        reader.wait(ticket)
    pread.open.set()
    reader.wait(ticket)
    reader.close()
    assert np.array_equal(destination, content[:BLOCK])


def test_close_starts_nothing_new_and_a_later_wait_says_so(content: Bytes) -> None:
    pread = ScriptedPread(content)
    pread.open.clear()
    reader = open_scripted(pread)
    ticket = reader.submit([ReadRequest(FILE, 0, np.zeros(10 * BLOCK, np.uint8))])
    pread.called.wait(60)
    with meanwhile(lambda: main_is_in(PreadvReader.close, threading.Thread.join), pread.open.set):
        reader.close()
    assert pread.offsets == [0]
    assert pread.running == 0, "memory may still be written after close"
    with pytest.raises(UsageError, match="closed before this read"):
        reader.wait(ticket)
