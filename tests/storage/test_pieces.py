from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uringinfer.errors import UsageError
from uringinfer.storage import pieces
from uringinfer.storage.direct import Direct, StorageFile
from uringinfer.storage.pieces import PieceQueue, own_submission
from uringinfer.storage.reader import Priority, ReadRequest

FILE = StorageFile(Path("weights.bin"), 3, 1 << 30, Direct(False, "scripted", 1, 1))


def request(nbytes: int, offset: int = 0, priority: Priority = Priority.TRUNK) -> ReadRequest:
    return ReadRequest(FILE, offset, np.zeros(nbytes, np.uint8), priority)


@given(data=st.data())
def test_whatever_the_results_every_byte_is_moved_exactly_once(data: st.DataObject) -> None:
    """A model of a drive: it completes pieces in any order, moves any part of them, or puts them off."""
    depth = data.draw(st.integers(1, 6))
    queue = PieceQueue(4096, depth)
    requests = [
        request(nbytes, priority=data.draw(st.sampled_from(Priority)))
        for nbytes in data.draw(st.lists(st.integers(0, 30_000), max_size=5))
    ]
    results = st.sampled_from([-errno.EAGAIN, -errno.EINTR, 1, 700, 4095])
    outcomes = iter(data.draw(st.lists(results, max_size=30)))
    submission = queue.push(requests)
    while not submission.done:
        while (piece := queue.peek()) is not None:
            queue.start(piece)
        assert 0 < len(queue.started) <= depth
        number = data.draw(st.sampled_from(sorted(queue.started)))
        piece = queue.started[number]
        result = min(next(outcomes, piece.nbytes), piece.nbytes)
        if result > 0:
            piece.read.request.destination[piece.start : piece.start + result] += 1
        queue.complete(number, result)
    assert all((r.destination == 1).all() for r in requests)
    assert submission.error is None
    assert queue.statistics.bytes_read == sum(r.destination.size for r in requests)


@given(st.integers(1, 200_000), st.integers(1, 8))
def test_pieces_are_as_large_as_the_split_allows_and_never_larger(nbytes: int, blocks: int) -> None:
    split = blocks * 4096
    queue = PieceQueue(split, 4096)
    queue.push([request(nbytes, offset=77)])
    sizes = []
    while (piece := queue.peek()) is not None:
        assert piece.offset == 77 + sum(sizes)
        queue.start(piece)
        sizes.append(piece.nbytes)
    assert sum(sizes) == nbytes
    assert all(size == split for size in sizes[:-1])
    assert 0 < sizes[-1] <= split


def test_a_result_that_comes_twice_counts_once() -> None:
    queue = PieceQueue(4096, 1)
    submission = queue.push([request(4096)])
    piece = queue.peek()
    assert piece is not None
    number = queue.start(piece)
    assert queue.complete(number, 4096) is submission
    assert queue.complete(number, 4096) is None
    assert queue.statistics.bytes_read == 4096


def test_nothing_is_queued_when_one_request_of_a_submission_is_wrong() -> None:
    queue = PieceQueue(4096, 1)
    with pytest.raises(UsageError, match="offset -1"):
        queue.push([request(4096), request(4096, offset=-1)])
    assert queue.peek() is None


@pytest.mark.parametrize("split_bytes", [0, 1000, 4097, (1 << 30) + 4096])
def test_a_split_that_is_no_multiple_of_a_block_or_too_large_is_refused(split_bytes: int) -> None:
    with pytest.raises(UsageError, match=f"pieces of {split_bytes} bytes"):
        PieceQueue(split_bytes, 1)


@pytest.mark.parametrize("queue_depth", [0, 4097])
def test_a_queue_depth_out_of_range_is_refused(queue_depth: int) -> None:
    with pytest.raises(UsageError, match=f"queue depth of {queue_depth}"):
        PieceQueue(4096, queue_depth)


def test_a_ticket_of_something_else_is_refused() -> None:
    class Other:
        done = True

    with pytest.raises(UsageError, match="no ticket of this reader"):
        own_submission(Other())


def test_the_drive_is_busy_from_the_first_start_to_the_last_result(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10.0
    monkeypatch.setattr(pieces.time, "perf_counter", lambda: now)
    queue = PieceQueue(4096, 2)
    queue.push([request(3 * 4096)])
    assert queue.in_flight_seconds == 0.0
    for later in (1.0, 0.5):
        now += later
        piece = queue.peek()
        assert piece is not None
        queue.start(piece)
    now += 2.0
    assert queue.in_flight_seconds == 2.5
    queue.complete(0, 4096)
    now += 4.0
    queue.complete(1, 4096)
    now += 8.0
    assert queue.in_flight_seconds == 6.5
    piece = queue.peek()
    assert piece is not None
    queue.start(piece)
    now += 16.0
    queue.complete(2, 4096)
    queue.complete(2, 4096)
    assert queue.in_flight_seconds == 22.5


def test_a_submission_of_which_nothing_was_started_can_be_taken_back() -> None:
    queue = PieceQueue(4096, 1)
    first, second, third = queue.push_each([request(4096, offset) for offset in (0, 4096, 8192)])
    number = queue.start(queue.peek())
    assert queue.withdraw(second)
    assert second.done and second.error is None
    queue.complete(number, 4096)
    piece = queue.peek()
    assert piece is not None and piece.offset == 8192
    queue.complete(queue.start(piece), 4096)
    assert first.done and third.done and queue.peek() is None


def test_a_submission_that_was_started_or_is_over_is_not_taken_back() -> None:
    queue = PieceQueue(4096, 2)
    (whole,), halves = [queue.push_each([request(4096)]), queue.push([request(4096), request(8192)])]
    numbers = [queue.start(queue.peek()) for _ in range(2)]
    assert not queue.withdraw(whole) and not queue.withdraw(halves)
    queue.complete(numbers[0], 4096)
    queue.complete(numbers[1], -errno.EINTR)
    assert not queue.withdraw(whole) and not queue.withdraw(halves)
    assert whole.done and not halves.done


def test_a_read_that_was_taken_back_is_not_served_as_demand_either() -> None:
    queue = PieceQueue(4096, 1)
    submission = queue.push([request(4096, priority=Priority.SPECULATION)])
    assert queue.withdraw(submission)
    queue.promote(submission)
    assert queue.peek() is None
