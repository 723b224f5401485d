"""The contract of a reader, kept by both implementations."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from uringinfer.errors import IntegrityError, UsageError
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import StorageFile, open_file
from uringinfer.storage.reader import Priority, Reader, ReadRequest

Bytes = NDArray[np.uint8]
OpenReader = Callable[..., Reader]

BLOCK = 4096


@settings(max_examples=30)
@given(data=st.data())
def test_many_reads_of_any_size_and_place_bring_their_bytes(
    open_one: OpenReader, content_path: Path, content: Bytes, data: st.DataObject
) -> None:
    direct = data.draw(st.sampled_from(["auto", "never"]))
    unit = BLOCK if direct == "auto" else 1
    with open_file(content_path, direct=direct) as file, Arena(8 << 20, populate=False) as arena:
        reader = open_one(
            arena=data.draw(st.sampled_from([arena, None])),
            files=data.draw(st.sampled_from([(), (file,)])),
            queue_depth=data.draw(st.integers(1, 9)),
            split_bytes=data.draw(st.sampled_from([4096, 12288, 65536, 1 << 20])),
        )
        requests = []
        for _ in range(data.draw(st.integers(1, 6))):
            start = data.draw(st.integers(0, content.size // unit - 1))
            count = data.draw(st.integers(0, min(content.size // unit - start, (1 << 20) // unit)))
            priority = data.draw(st.sampled_from(list(Priority)))
            requests.append(ReadRequest(file, start * unit, arena.carve(count * unit), priority))
        reader.wait(reader.submit(requests))
        reader.close()
    for request in requests:
        expected = content[request.offset : request.offset + request.destination.size]
        assert np.array_equal(request.destination, expected)


def test_polling_alone_finishes_a_ticket(open_one: OpenReader, file: StorageFile, content: Bytes) -> None:
    with Arena(content.size) as arena:
        destination = arena.carve(content.size)
        reader = open_one(split_bytes=65536, queue_depth=2)
        ticket = reader.submit([ReadRequest(file, 0, destination)])
        while not ticket.done:
            reader.poll()
            time.sleep(0)  # lets the threads of the fallback run
        assert np.array_equal(destination, content)


def test_a_read_beyond_the_end_names_the_file_and_the_byte(open_one: OpenReader, tmp_path: Path) -> None:
    path = tmp_path / "short.bin"
    path.write_bytes(bytes(3 * BLOCK))
    with open_file(path) as file, Arena(BLOCK) as arena:
        reader = open_one()
        ticket = reader.submit([ReadRequest(file, 2 * BLOCK, arena.carve(2 * BLOCK))])
        with pytest.raises(
            IntegrityError, match=rf"short\.bin: the file ends before byte {4 * BLOCK}.*truncated"
        ):
            reader.wait(ticket)


def test_a_file_that_ends_inside_a_block_is_an_error_and_no_endless_loop(
    open_one: OpenReader, tmp_path: Path
) -> None:
    path = tmp_path / "odd.bin"
    path.write_bytes(bytes(2 * BLOCK + 1000))
    with open_file(path) as file, Arena(BLOCK) as arena:
        reader = open_one()
        ticket = reader.submit([ReadRequest(file, 0, arena.carve(3 * BLOCK))])
        with pytest.raises(IntegrityError, match=r"odd\.bin: the file ends before byte 12288"):
            reader.wait(ticket)


def test_one_failed_read_leaves_the_others_of_its_ticket_whole(
    open_one: OpenReader, file: StorageFile, content: Bytes
) -> None:
    with Arena(content.size) as arena:
        good, bad = arena.carve(1 << 20), arena.carve(BLOCK)
        reader = open_one(split_bytes=BLOCK)
        ticket = reader.submit([ReadRequest(file, content.size, bad), ReadRequest(file, 0, good)])
        with pytest.raises(IntegrityError):
            reader.wait(ticket)
        assert np.array_equal(good, content[: 1 << 20])


def test_the_error_of_a_ticket_comes_again_when_it_is_waited_for_again(
    open_one: OpenReader, file: StorageFile, content: Bytes
) -> None:
    with Arena(BLOCK) as arena:
        reader = open_one()
        ticket = reader.submit([ReadRequest(file, content.size, arena.carve(BLOCK))])
        for _ in range(2):
            with pytest.raises(IntegrityError):
                reader.wait(ticket)


@pytest.mark.parametrize(
    ("offset", "length", "shift", "message"),
    [
        (512 + 8, BLOCK, 0, "offset 520 of a direct read is a multiple of 8, not of"),
        (0, 1000, 0, "length 1000 of a direct read is a multiple of 8, not of"),
        (0, BLOCK, 8, "memory address .* of a direct read is a multiple of 8, not of"),
    ],
)
def test_a_misaligned_direct_read_is_refused_with_both_alignments(
    open_one: OpenReader, file: StorageFile, offset: int, length: int, shift: int, message: str
) -> None:
    if not file.direct.is_direct:
        pytest.skip(f"no direct I/O here: {file.direct.reason}")
    with Arena(BLOCK) as arena:
        destination = arena.carve(2 * BLOCK)[shift : shift + length]
        with pytest.raises(UsageError, match=message):
            open_one().submit([ReadRequest(file, offset, destination)])


@pytest.mark.parametrize(
    "destination",
    [np.zeros(BLOCK, np.int8), np.zeros(2 * BLOCK, np.uint8)[::2], np.frombuffer(bytes(BLOCK), np.uint8)],
    ids=["other dtype", "strided", "read-only"],
)
def test_a_destination_that_cannot_be_filled_is_refused(
    open_one: OpenReader, file: StorageFile, destination: Bytes
) -> None:
    with pytest.raises(UsageError, match="contiguous, writable array of uint8"):
        open_one().submit([ReadRequest(file, 0, destination)])


def test_a_closed_file_is_refused(open_one: OpenReader, content_path: Path) -> None:
    file = open_file(content_path)
    file.close()
    with pytest.raises(UsageError, match="the file is closed"):
        open_one().submit([ReadRequest(file, 0, np.zeros(BLOCK, np.uint8))])


def test_a_closed_reader_is_refused_and_closing_twice_is_harmless(
    open_one: OpenReader, file: StorageFile
) -> None:
    reader = open_one()
    reader.close()
    reader.close()
    with pytest.raises(UsageError, match="the reader is closed"):
        reader.submit([ReadRequest(file, 0, np.zeros(BLOCK, np.uint8))])


def test_close_waits_for_what_is_in_flight(open_one: OpenReader, file: StorageFile, content: Bytes) -> None:
    with Arena(content.size) as arena:
        destination = arena.carve(content.size)
        reader = open_one(split_bytes=1 << 20, queue_depth=4)
        reader.submit([ReadRequest(file, 0, destination)])
        reader.close()
        after = destination.copy()
        time.sleep(0.05)
        assert np.array_equal(destination, after)


def test_a_batch_gives_each_request_a_ticket_of_its_own(
    open_one: OpenReader, file: StorageFile, content: Bytes
) -> None:
    with Arena(4 * BLOCK) as arena:
        reader = open_one(queue_depth=1)
        beyond = ReadRequest(file, content.size, arena.carve(BLOCK))
        requests = [ReadRequest(file, n * BLOCK, arena.carve(BLOCK)) for n in range(3)]
        tickets = reader.submit_each([requests[0], beyond, *requests[1:]])
        reader.wait(tickets[3])
        with pytest.raises(IntegrityError, match="the file ends"):
            reader.wait(tickets[1])
        for ticket, request in zip((tickets[0], *tickets[2:]), requests, strict=True):
            reader.wait(ticket)
            assert np.array_equal(request.destination, content[request.offset : request.offset + BLOCK])


def test_a_batch_with_a_wrong_request_queues_nothing(open_one: OpenReader, file: StorageFile) -> None:
    with Arena(BLOCK) as arena:
        reader = open_one()
        good = ReadRequest(file, 0, arena.carve(BLOCK))
        with pytest.raises(UsageError):
            reader.submit_each([good, ReadRequest(file, -1, good.destination)])
        assert reader.statistics().requests == 0


def test_an_empty_submission_is_done_at_once(open_one: OpenReader, file: StorageFile) -> None:
    reader = open_one()
    empty = np.zeros(0, np.uint8)
    assert reader.submit([]).done
    assert reader.submit([ReadRequest(file, 0, empty)]).done


def test_statistics_count_requests_pieces_and_bytes_by_priority(
    open_one: OpenReader, file: StorageFile
) -> None:
    with Arena(4 * BLOCK) as arena:
        reader = open_one(split_bytes=BLOCK)
        requests = [
            ReadRequest(file, 0, arena.carve(2 * BLOCK), Priority.DEMAND),
            ReadRequest(file, 0, arena.carve(BLOCK), Priority.SPECULATION),
        ]
        reader.wait(reader.submit(requests))
        counted = reader.statistics()
    assert (counted.requests, counted.pieces, counted.bytes_read) == (2, 3, 3 * BLOCK)
    assert counted.bytes_by_priority == {
        "demand": 2 * BLOCK,
        "trunk": 0,
        "expected": 0,
        "speculation": BLOCK,
    }


def test_statistics_are_a_copy(open_one: OpenReader, file: StorageFile) -> None:
    reader = open_one()
    before = reader.statistics()
    with Arena(BLOCK) as arena:
        reader.wait(reader.submit([ReadRequest(file, 0, arena.carve(BLOCK), Priority.DEMAND)]))
    assert before.requests == 0
    assert before.bytes_by_priority["demand"] == 0


@pytest.mark.slow
def test_a_read_of_more_than_two_gibibytes_is_whole(open_one: OpenReader, tmp_path: Path) -> None:
    nbytes = (2 << 30) + (1 << 20)
    path = tmp_path / "sparse.bin"
    with path.open("wb") as sparse:
        sparse.truncate(nbytes)
        for position in (0, 0x7FFFF000 - 1, 0x7FFFF000, 1 << 31, nbytes - 1):
            sparse.seek(position)
            sparse.write(b"\xa5")
    with open_file(path) as file, Arena(nbytes) as arena:
        destination = arena.carve(nbytes)
        reader = open_one(arena=arena, split_bytes=1 << 30)
        reader.wait(reader.submit([ReadRequest(file, 0, destination)]))
        found = np.flatnonzero(destination)
        assert found.tolist() == [0, 0x7FFFF000 - 1, 0x7FFFF000, 1 << 31, nbytes - 1]
        reader.close()


def test_what_was_taken_back_is_not_read_and_what_was_not_is(
    open_one: OpenReader, file: StorageFile, content: Bytes
) -> None:
    with Arena(8 * BLOCK) as arena:
        reader = open_one(queue_depth=1, split_bytes=BLOCK)
        destinations = [arena.carve(BLOCK) for _ in range(8)]
        for destination in destinations:
            destination.fill(0x5A)
        tickets = reader.submit_each(
            [ReadRequest(file, n * BLOCK, destinations[n], Priority.SPECULATION) for n in range(8)]
        )
        taken_back = [reader.withdraw(ticket) for ticket in tickets]  # the first may be under way, or over
        for n, ticket in enumerate(tickets):
            reader.wait(ticket)
            expected = 0x5A if taken_back[n] else content[n * BLOCK : (n + 1) * BLOCK]
            assert np.all(destinations[n] == expected)
        reader.close()
