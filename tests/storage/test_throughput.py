from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interruption import interrupted_when
from numpy.typing import NDArray

from uringinfer.errors import UsageError
from uringinfer.storage import throughput
from uringinfer.storage.arena import Arena
from uringinfer.storage.denial import Denial
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.filesystem import cached_share, data_bytes, evict
from uringinfer.storage.saturate import BATCH, Trace, keep_ring_full, keep_threads_busy
from uringinfer.storage.throughput import Cell, Engine, Meter, Pattern, summarise
from uringinfer.storage.uring import NOTE_DTYPE, READ_DTYPE, open_ring

BLOCK = 4096
MS = 1_000_000


@pytest.fixture(params=list(Engine))
def engine(request: pytest.FixtureRequest) -> Engine:
    ring = open_ring(1)
    if isinstance(ring, Denial):
        if request.param is not Engine.PREADV:
            pytest.skip(f"no io_uring here: {ring.reason}")
    else:
        ring.close()
    return Engine(request.param)


@pytest.fixture
def memory() -> Iterator[NDArray[np.uint8]]:
    with Arena(4 << 20) as arena:
        yield arena.carve(arena.nbytes)


def cell(engine: Engine, pattern: Pattern = Pattern.SEQUENTIAL, depth: int = 4) -> Cell:
    return Cell(BLOCK, depth, pattern, engine)


def trace(begin: list[int], submitted: list[int], end: list[int], results: list[int]) -> Trace:
    return Trace(*(np.array(values, np.int64) for values in (begin, submitted, end, results)))


@pytest.mark.parametrize("pattern", list(Pattern))
def test_a_cell_reads_every_block_of_a_short_file_once(
    file: StorageFile, memory: NDArray[np.uint8], engine: Engine, pattern: Pattern
) -> None:
    found = Meter(file, 64 * BLOCK, memory, seconds=60).measure(cell(engine, pattern))
    assert (found.reads, found.nbytes, found.short_reads, found.errors) == (64, 64 * BLOCK, 0, 0)
    assert found.seconds < 60


def test_the_bytes_really_arrive(
    file: StorageFile, memory: NDArray[np.uint8], engine: Engine, content: NDArray[np.uint8]
) -> None:
    memory[:] = 0
    Meter(file, 4 * BLOCK, memory, seconds=60).measure(cell(engine, depth=4))
    arrived = sorted(memory[i * BLOCK : (i + 1) * BLOCK].tobytes() for i in range(4))
    expected = sorted(content[i * BLOCK : (i + 1) * BLOCK].tobytes() for i in range(4))
    if engine is Engine.PREADV:  # a fast thread may read two blocks into its slot
        assert set(arrived) - {bytes(BLOCK)} <= set(expected)
    else:
        assert arrived == expected


def test_time_that_is_over_ends_a_cell_after_what_is_in_flight(
    file: StorageFile, memory: NDArray[np.uint8], engine: Engine
) -> None:
    found = Meter(file, file.nbytes, memory, seconds=0).measure(cell(engine))
    assert found.reads == 4


def test_sequential_cells_go_on_where_the_one_before_ended(
    file: StorageFile, memory: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets: list[int] = []
    real = os.preadv

    def note(fd: int, buffers: list[memoryview], offset: int) -> int:
        offsets.append(offset)
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", note)
    meter = Meter(file, file.nbytes, memory, seconds=0)
    for _ in range(3):
        meter.measure(cell(Engine.PREADV, depth=1))
    assert offsets == [0, BLOCK, 2 * BLOCK]


def test_the_cpu_is_that_of_reading_alone(
    file: StorageFile, memory: NDArray[np.uint8], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            events.append(name)
            return function(*arguments)

        return call

    for name in ("open_ring", "keep_ring_full", "keep_threads_busy"):
        monkeypatch.setattr(throughput, name, noting(name, getattr(throughput, name)))
    monkeypatch.setattr(throughput.resource, "getrusage", noting("cpu", throughput.resource.getrusage))
    Meter(file, 16 * BLOCK, memory, seconds=60).measure(cell(engine))
    reading = "keep_threads_busy" if engine is Engine.PREADV else "keep_ring_full"
    assert [event for event in events if event != "open_ring"] == ["cpu", reading, "cpu"]
    assert "open_ring" not in events[1:]


def test_reads_beyond_the_end_are_short_and_failed_reads_are_counted() -> None:
    found = summarise(
        cell(Engine.URING),
        trace([0] * 4, [0] * 4, [MS] * 4, [BLOCK, 100, 0, -errno.EIO]),
        (0.0, 0.0),
    )
    assert (found.reads, found.nbytes, found.short_reads, found.errors) == (4, BLOCK + 100, 2, 1)


def test_rates_and_latencies_come_from_the_times() -> None:
    # ten reads one after the other, 1 ms each, of which 0.1 ms is the hand-over
    begin = [i * MS for i in range(10)]
    submitted = [t + MS // 10 for t in begin]
    end = [t + MS for t in begin]
    found = summarise(cell(Engine.URING), trace(begin, submitted, end, [BLOCK] * 10), (0.5, 0.25))
    assert found.seconds == pytest.approx(0.01)
    assert found.bytes_per_second == pytest.approx(BLOCK / 1e-3)
    assert found.reads_per_second == pytest.approx(1000)
    assert found.submit.p50 == pytest.approx(1e-4)
    assert found.complete.p99 == pytest.approx(9e-4)
    assert found.total.max == pytest.approx(1e-3)
    assert (found.user_seconds, found.system_seconds) == (0.5, 0.25)


def test_percentiles_are_latencies_of_reads_that_took_place() -> None:
    # 1..1000 ms: by nearest rank the 99.9th percentile is 999 ms
    end = [i * MS for i in range(1, 1001)]
    found = summarise(cell(Engine.URING), trace([0] * 1000, [0] * 1000, end, [BLOCK] * 1000), (0, 0))
    total = found.total
    assert [total.p50, total.p90, total.p99, total.max] == pytest.approx([0.5, 0.9, 0.99, 1.0])
    assert total.p99_9 == pytest.approx(0.999, abs=0.0011)  # 99.9 % of 1000 is not exact in binary


def test_a_drive_that_slows_down_shows_in_the_last_tenth() -> None:
    # the first half takes 1 ms a read, the second 3 ms: 10 ms and 30 ms
    lengths = [MS] * 10 + [3 * MS] * 10
    end = np.cumsum(lengths).tolist()
    begin = [0, *end[:-1]]
    found = summarise(cell(Engine.URING), trace(begin, begin, end, [BLOCK] * 20), (0, 0))
    assert found.first_tenth == pytest.approx(BLOCK / 1e-3)
    assert found.last_tenth == pytest.approx(BLOCK / 3e-3)


def test_a_cell_that_read_nothing_has_no_rates() -> None:
    found = summarise(cell(Engine.URING), trace([], [], [], []), (0, 0))
    assert (found.bytes_per_second, found.reads_per_second, found.total.max) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("nbytes", [100, 4 << 20])
def test_what_does_not_fit_is_refused(file: StorageFile, memory: NDArray[np.uint8], nbytes: int) -> None:
    meter = Meter(file, nbytes, memory, seconds=0)
    with pytest.raises(UsageError, match="do not fit"):
        meter.measure(Cell(2 << 20, 4, Pattern.RANDOM, Engine.PREADV))


def test_array_types_have_the_layout_of_the_c_structures() -> None:
    module = pytest.importorskip("uringinfer.storage._uring", reason="the ring's module was not built")
    for name, dtype in (("uring_read", READ_DTYPE), ("uring_note", NOTE_DTYPE)):
        assert module.ffi.sizeof(f"struct {name}") == dtype.itemsize
        assert dtype.fields is not None
        for field, (_, offset) in dtype.fields.items():
            assert module.ffi.offsetof(f"struct {name}", field) == offset


def test_ctrl_c_ends_a_cell_of_threads_and_leaves_none_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def slow(fd: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(offset)
        sys._getframe(1).f_locals["stop"].wait()  # lasts until the threads have been told to end
        return BLOCK

    monkeypatch.setattr(os, "preadv", slow)
    slots = [np.zeros(BLOCK, np.uint8).data for _ in range(2)]
    with interrupted_when(lambda: len(calls) == 2):
        keep_threads_busy(-1, list(range(1000)), slots, seconds=60)
    assert len(calls) == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("probe-")]


def test_the_ring_is_handed_no_more_than_a_batch_at_once(
    file: StorageFile, memory: NDArray[np.uint8]
) -> None:
    depth = 4 * BATCH + 1
    ring = open_ring(depth)
    if isinstance(ring, Denial):
        pytest.skip(f"no io_uring here: {ring.reason}")
    reads = np.zeros(depth, READ_DTYPE)
    reads["number"] = np.arange(depth)
    reads["offset"] = reads["number"] * BLOCK
    reads["address"] = memory.ctypes.data + reads["offset"]
    reads["nbytes"], reads["file"], reads["buffer"] = BLOCK, file.fd, -1
    try:
        found = keep_ring_full(ring, reads, depth, seconds=60)
    finally:
        ring.close()
    # the reads of one call share the time at which they were handed over; all of them fit into the queue
    assert np.unique(found.submitted, return_counts=True)[1].tolist() == [BATCH] * 4 + [1]
    assert found.results.tolist() == [BLOCK] * depth


def test_ctrl_c_ends_a_cell_of_the_ring(file: StorageFile, memory: NDArray[np.uint8]) -> None:
    ring = open_ring(1)
    if isinstance(ring, Denial):
        pytest.skip(f"no io_uring here: {ring.reason}")
    out, into = os.pipe()  # never answers, until the interruption has been seen
    reads = np.zeros(1, READ_DTYPE)
    reads["address"], reads["nbytes"], reads["file"] = memory.ctypes.data, BLOCK, out
    reads["buffer"] = -1
    notes = np.zeros(1, NOTE_DTYPE)
    with interrupted_when(lambda: notes["submitted"][0] > 0):
        ring.saturate(reads, notes, 1, 1, 0)
    assert ring.in_flight == 1
    os.write(into, b"x")
    ring.reap(wait=True)
    ring.advance(1)
    ring.close()
    os.close(out)
    os.close(into)


def test_sparse_parts_and_cached_parts_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "half"
    with path.open("wb") as half:
        half.write(os.urandom(1 << 20))
        half.truncate(2 << 20)
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    evict(fd, 0, 0)
    assert data_bytes(fd, 2 << 20) == 1 << 20
    assert cached_share(fd, 2 << 20) == 0.0
    os.pread(fd, 2 << 20, 0)
    assert cached_share(fd, 2 << 20) == 1.0
    os.close(fd)
