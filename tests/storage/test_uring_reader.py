"""The uring reader over a scripted ring."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scripted_ring import BLOCK, FILE, Script, ScriptedRing, open_scripted

from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import Direct, StorageFile
from uringinfer.storage.pieces import MAX_ATTEMPTS
from uringinfer.storage.reader import Priority, ReadRequest
from uringinfer.storage.uring import UringReader

Bytes = NDArray[np.uint8]

DIRECT = Direct(True, "scripted", 512, 512)


def read_all(content: Bytes, script: Script) -> tuple[Bytes, UringReader]:
    """Reads four blocks of `content` through a ring that follows `script`."""
    destination = np.zeros(4 * BLOCK, np.uint8)
    reader = open_scripted(ScriptedRing(content, script))
    reader.wait(reader.submit([ReadRequest(FILE, 0, destination)]))
    return destination, reader


def test_a_short_read_goes_on_where_it_stopped(content: Bytes) -> None:
    destination, reader = read_all(content, lambda read: min(read.nbytes, 1000))
    assert np.array_equal(destination, content[: 4 * BLOCK])
    assert reader.statistics().short_reads == 4 * 4  # 4096 bytes take five reads of at most 1000


def test_a_direct_read_that_stops_inside_a_block_goes_on_from_that_block(content: Bytes) -> None:
    results = iter([1000, BLOCK])
    offsets = []

    def script(read: Any) -> int:
        offsets.append(read.offset)
        return min(next(results), read.nbytes)

    with Arena(BLOCK) as arena:
        destination = arena.carve(BLOCK)
        reader = open_scripted(ScriptedRing(content, script))
        file = StorageFile(Path("weights.bin"), 99, 1 << 20, DIRECT)
        reader.wait(reader.submit([ReadRequest(file, 0, destination)]))
        assert offsets == [0, 512]
        assert np.array_equal(destination, content[:BLOCK])
        assert reader.statistics().bytes_read == BLOCK


@pytest.mark.parametrize("number", [errno.EINTR, errno.EAGAIN])
def test_a_read_that_was_put_off_is_tried_again(content: Bytes, number: int) -> None:
    results = iter([-number, -number])
    destination, reader = read_all(content, lambda read: next(results, read.nbytes))
    assert np.array_equal(destination, content[: 4 * BLOCK])
    assert reader.statistics().retries == 2


def test_a_read_that_is_put_off_for_ever_fails_in_the_end(content: Bytes) -> None:
    reader = open_scripted(ScriptedRing(content, lambda read: -errno.EAGAIN))
    ticket = reader.submit([ReadRequest(FILE, 0, np.zeros(BLOCK, np.uint8))])
    with pytest.raises(IntegrityError, match=os.strerror(errno.EAGAIN)):
        reader.wait(ticket)
    assert reader.statistics().retries == MAX_ATTEMPTS


def test_an_input_output_error_names_file_offset_length_and_cause(content: Bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_all(content, lambda read: -errno.EIO if read.offset == 2 * BLOCK else read.nbytes)
    assert caught.value.message == (
        "weights.bin: a read of 4096 bytes at offset 8192 failed: Input/output error (EIO)"
    )
    assert "dmesg" in str(caught.value)


def test_a_direct_read_that_the_kernel_calls_invalid_names_the_alignment(content: Bytes) -> None:
    file = StorageFile(Path("weights.bin"), 99, 1 << 20, DIRECT)
    with Arena(BLOCK) as arena:
        reader = open_scripted(ScriptedRing(content, lambda read: -errno.EINVAL))
        ticket = reader.submit([ReadRequest(file, 0, arena.carve(BLOCK))])
        with pytest.raises(IntegrityError, match="aligned to 512 bytes, memory to 512"):
            reader.wait(ticket)


def test_no_bytes_mean_the_end_of_the_file(content: Bytes) -> None:
    with pytest.raises(IntegrityError, match="the file ends before byte 16384, inside a read of 16384 bytes"):
        read_all(content, lambda read: read.nbytes if read.offset < 3 * BLOCK else 0)


def test_completions_may_come_in_any_order(content: Bytes) -> None:
    destination = np.zeros(8 * BLOCK, np.uint8)
    ring = ScriptedRing(content)
    ring.reverse = True
    reader = open_scripted(ring, queue_depth=3)
    reader.wait(reader.submit([ReadRequest(FILE, 0, destination)]))
    assert np.array_equal(destination, content[: 8 * BLOCK])


def test_never_more_than_the_queue_depth_is_in_flight(content: Bytes) -> None:
    ring = ScriptedRing(content)
    reader = open_scripted(ring, queue_depth=3)
    tickets = [reader.submit([ReadRequest(FILE, 0, np.zeros(5 * BLOCK, np.uint8))]) for _ in range(4)]
    for ticket in tickets:
        reader.wait(ticket)
    assert ring.most_in_flight == 3


def test_many_pieces_go_down_in_one_call(content: Bytes) -> None:
    ring = ScriptedRing(content)
    calls = []
    submit = ring.submit
    ring.submit = lambda reads: calls.append(len(reads)) or submit(reads)  # type: ignore[method-assign,func-returns-value]
    reader = open_scripted(ring, queue_depth=8)
    requests = [ReadRequest(FILE, i * BLOCK, np.zeros(BLOCK, np.uint8)) for i in range(8)]
    reader.wait(reader.submit(requests))
    assert calls == [8]


def test_demand_goes_before_the_trunk_and_the_trunk_before_speculation(content: Bytes) -> None:
    ring = ScriptedRing(content)
    reader = open_scripted(ring, queue_depth=1)
    requests = [
        ReadRequest(FILE, offset * BLOCK, np.zeros(2 * BLOCK, np.uint8), priority)
        for offset, priority in [(0, Priority.SPECULATION), (10, Priority.TRUNK), (20, Priority.DEMAND)]
    ]
    reader.wait(reader.submit(requests))
    assert [read.offset // BLOCK for read in ring.taken] == [20, 21, 10, 11, 0, 1]


def test_demand_that_comes_later_overtakes_what_has_not_started(content: Bytes) -> None:
    ring = ScriptedRing(content)
    ring.held = True
    reader = open_scripted(ring, queue_depth=1)
    trunk = reader.submit([ReadRequest(FILE, 0, np.zeros(3 * BLOCK, np.uint8))])
    demand = reader.submit([ReadRequest(FILE, 10 * BLOCK, np.zeros(BLOCK, np.uint8), Priority.DEMAND)])
    ring.held = False
    reader.wait(demand)
    reader.wait(trunk)
    assert [read.offset // BLOCK for read in ring.taken] == [0, 10, 1, 2]


def test_speculation_holds_a_quarter_of_the_places(content: Bytes) -> None:
    ring = ScriptedRing(content)
    ring.held = True
    reader = open_scripted(ring, queue_depth=8)
    reader.submit([ReadRequest(FILE, 0, np.zeros(20 * BLOCK, np.uint8), Priority.SPECULATION)])
    assert len(ring.taken) == 2
    reader.submit([ReadRequest(FILE, 30 * BLOCK, np.zeros(4 * BLOCK, np.uint8), Priority.DEMAND)])
    assert [read.offset // BLOCK for read in ring.taken[2:]] == [30, 31, 32, 33]


def test_expected_reads_go_before_speculation_and_both_together_hold_half_of_the_places(
    content: Bytes,
) -> None:
    ring = ScriptedRing(content)
    ring.held = True
    reader = open_scripted(ring, queue_depth=8)
    for start, priority in ((0, Priority.SPECULATION), (20, Priority.EXPECTED)):
        reader.submit([ReadRequest(FILE, start * BLOCK, np.zeros(9 * BLOCK, np.uint8), priority)])
    assert [read.offset // BLOCK for read in ring.taken] == [0, 1, 20, 21]
    reader.submit([ReadRequest(FILE, 40 * BLOCK, np.zeros(BLOCK, np.uint8), Priority.DEMAND)])
    assert [read.offset // BLOCK for read in ring.taken[4:]] == [40]


def test_speculation_does_not_start_beside_demand(content: Bytes) -> None:
    ring = ScriptedRing(content)
    ring.held = True
    reader = open_scripted(ring, queue_depth=8)
    demand = reader.submit([ReadRequest(FILE, 0, np.zeros(2 * BLOCK, np.uint8), Priority.DEMAND)])
    guess = ReadRequest(FILE, 10 * BLOCK, np.zeros(2 * BLOCK, np.uint8), Priority.SPECULATION)
    trunk = ReadRequest(FILE, 20 * BLOCK, np.zeros(BLOCK, np.uint8), Priority.TRUNK)
    reader.submit([guess, trunk])
    assert [read.offset // BLOCK for read in ring.taken] == [0, 1, 20]
    ring.held = False
    reader.wait(demand)
    assert [read.offset // BLOCK for read in ring.taken[3:]] == [10, 11]


def test_speculation_that_is_waited_for_becomes_demand(content: Bytes) -> None:
    ring = ScriptedRing(content)
    ring.held = True
    reader = open_scripted(ring, queue_depth=1)
    trunk = reader.submit([ReadRequest(FILE, 0, np.zeros(3 * BLOCK, np.uint8))])
    guess = reader.submit(
        [ReadRequest(FILE, 10 * BLOCK, np.zeros(2 * BLOCK, np.uint8), Priority.SPECULATION)]
    )
    ring.held = False
    reader.wait(guess)
    assert [read.offset // BLOCK for read in ring.taken[:3]] == [0, 10, 11]
    reader.wait(trunk)
    assert reader.statistics().bytes_by_priority["speculation"] == 2 * BLOCK


def test_promoted_speculation_starts_beside_demand_and_before_other_speculation(content: Bytes) -> None:
    ring = ScriptedRing(content)
    ring.held = True
    reader = open_scripted(ring, queue_depth=8)
    demand = ReadRequest(FILE, 0, np.zeros(BLOCK, np.uint8), Priority.DEMAND)
    reader.submit([demand])
    guesses = reader.submit_each(
        [ReadRequest(FILE, n * BLOCK, np.zeros(BLOCK, np.uint8), Priority.SPECULATION) for n in (10, 20, 30)]
    )
    reader.promote([guesses[2], guesses[1]])
    assert [read.offset // BLOCK for read in ring.taken] == [0, 30, 20]
    ring.held = False
    for guess in guesses:
        reader.wait(guess)
    assert sorted(read.offset // BLOCK for read in ring.taken) == [0, 10, 20, 30]


def test_a_failed_read_starts_no_further_pieces(content: Bytes) -> None:
    ring = ScriptedRing(content, lambda read: -errno.EIO)
    reader = open_scripted(ring, queue_depth=1)
    ticket = reader.submit([ReadRequest(FILE, 0, np.zeros(100 * BLOCK, np.uint8))])
    with pytest.raises(IntegrityError):
        reader.wait(ticket)
    assert len(ring.taken) == 1


def test_a_ticket_is_done_only_when_all_of_its_reads_are(content: Bytes) -> None:
    ring = ScriptedRing(content)
    ring.held = True
    reader = open_scripted(ring, queue_depth=1)
    destination = np.zeros(2 * BLOCK, np.uint8)
    ticket = reader.submit([ReadRequest(FILE, 0, destination)])
    reader.poll()
    assert not ticket.done
    ring.held = False
    reader.poll()
    assert not ticket.done, "the second piece was only started"
    reader.poll()
    assert ticket.done
    assert np.array_equal(destination, content[: 2 * BLOCK])


def test_a_failed_read_is_done_only_when_its_other_pieces_have_landed(content: Bytes) -> None:
    ring = ScriptedRing(content, lambda read: -errno.EIO if read.offset == 0 else read.nbytes)
    reader = open_scripted(ring, queue_depth=2)
    ticket = reader.submit([ReadRequest(FILE, 0, np.zeros(2 * BLOCK, np.uint8))])
    first, reap = [True], ring.reap

    def reap_one(wait: bool) -> tuple[int, list[tuple[int, int]]]:
        status, results = reap(wait)
        return status, results[:1] if first else results

    ring.reap = reap_one  # type: ignore[method-assign]
    reader.poll()
    assert not ticket.done
    first.clear()
    reader.poll()
    assert ticket.done


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EBUSY, errno.EINTR])
def test_a_ring_that_is_busy_is_asked_again(content: Bytes, number: int) -> None:
    ring = ScriptedRing(content)
    ring.submit_results = [-number]
    ring.reap_results = [-number]
    ring.room = 2  # and takes only some of what it is given
    destination = np.zeros(8 * BLOCK, np.uint8)
    reader = open_scripted(ring)
    reader.wait(reader.submit([ReadRequest(FILE, 0, destination)]))
    assert np.array_equal(destination, content[: 8 * BLOCK])


def test_a_ring_that_breaks_is_an_error_with_its_cause(content: Bytes) -> None:
    ring = ScriptedRing(content)
    ring.submit_results = [-errno.EBADF]
    with pytest.raises(EnvironmentError_, match=f"io_uring failed to submit: {os.strerror(errno.EBADF)}"):
        open_scripted(ring).submit([ReadRequest(FILE, 0, np.zeros(BLOCK, np.uint8))])


def test_reads_into_the_arena_use_its_registered_buffers(content: Bytes) -> None:
    ring = ScriptedRing(content)
    with Arena(4 << 20) as arena:
        reader = open_scripted(ring, arena=arena)
        outside = np.zeros(BLOCK, np.uint8)
        reader.wait(reader.submit([ReadRequest(FILE, 0, arena.carve(BLOCK)), ReadRequest(FILE, 0, outside)]))
        assert ring.registered == [(arena.address, arena.nbytes, 1 << 30)]
    assert [read.buffer for read in ring.taken] == [0, -1]


def test_a_piece_that_lies_in_two_registered_buffers_uses_none(content: Bytes) -> None:
    ring = ScriptedRing(content)
    with Arena((1 << 30) + (2 << 20), populate=False) as arena:
        reader = UringReader(ring, queue_depth=4, split_bytes=2 * BLOCK, arena=arena)
        memory = arena.carve(arena.nbytes)
        start = (1 << 30) - 3 * BLOCK
        reader.wait(reader.submit([ReadRequest(FILE, 0, memory[start : start + 6 * BLOCK])]))
    assert [read.buffer for read in ring.taken] == [0, -1, 1]


def test_memory_that_may_not_be_pinned_is_a_note_with_the_limits_and_reads_go_on(content: Bytes) -> None:
    ring = ScriptedRing(content)
    ring.register_result = -errno.ENOMEM
    with Arena(4 << 20) as arena:
        reader = open_scripted(ring, arena=arena)
        destination = arena.carve(BLOCK)
        reader.wait(reader.submit([ReadRequest(FILE, 0, destination)]))
        assert np.array_equal(destination, content[:BLOCK])
    assert ring.taken[0].buffer == -1
    assert "pin 4.00 MiB" in reader.notes[0]
    assert "soft limit" in reader.notes[0]


def test_registered_files_go_by_their_index_and_others_by_descriptor(content: Bytes) -> None:
    ring = ScriptedRing(content)
    first = StorageFile(Path("a"), 5, 1 << 20, DIRECT)
    second = StorageFile(Path("b"), 6, 1 << 20, DIRECT)
    # a number that the kernel gave away again after `second` was closed
    reused = StorageFile(Path("c"), 6, 1 << 20, DIRECT)
    with Arena(3 * BLOCK) as arena:
        reader = open_scripted(ring, files=[first, second])
        requests = [ReadRequest(file, 0, arena.carve(BLOCK)) for file in (first, second, reused)]
        reader.wait(reader.submit(requests))
    assert ring.registered_fds == [5, 6]
    assert [(read.file, read.flags) for read in ring.taken] == [(0, 1), (1, 1), (6, 0)]


def test_files_that_cannot_be_registered_are_a_note_and_go_by_descriptor(content: Bytes) -> None:
    ring = ScriptedRing(content)
    ring.register_result = -errno.EMFILE
    reader = open_scripted(ring, files=[FILE])
    reader.wait(reader.submit([ReadRequest(FILE, 0, np.zeros(BLOCK, np.uint8))]))
    assert ring.taken[0].file == FILE.fd
    assert "1 files" in reader.notes[0]


def test_reads_through_the_page_cache_are_left_to_the_kernels_threads(content: Bytes) -> None:
    ring = ScriptedRing(content)
    reader = open_scripted(ring)
    reader.wait(reader.submit([ReadRequest(FILE, 0, np.zeros(BLOCK, np.uint8))]))
    assert ring.taken[0].flags == ring.ASYNC


def test_another_thread_may_not_use_the_reader(content: Bytes) -> None:
    reader = open_scripted(ScriptedRing(content))
    caught: list[BaseException] = []

    def use() -> None:
        try:
            reader.poll()
        except UsageError as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "belongs to the thread that made it" in str(caught[0])


def test_close_takes_what_is_in_flight_and_starts_nothing_new(content: Bytes) -> None:
    ring = ScriptedRing(content)
    reader = open_scripted(ring, queue_depth=2)
    ticket = reader.submit([ReadRequest(FILE, 0, np.zeros(10 * BLOCK, np.uint8))])
    reader.close()
    assert (len(ring.taken), ring.in_flight, ring.closed) == (2, 0, True)
    with pytest.raises(UsageError, match="the reader is closed"):
        reader.wait(ticket)
