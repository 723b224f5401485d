import itertools

import pytest

from uringinfer.diagnosis.read_clock import BLOCK_BYTES, clock_latency, clock_reads
from uringinfer.storage.direct import open_file
from uringinfer.storage.reader import open_reader


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(3 * BLOCK_BYTES + 4096))
    with open_file(path) as file:
        yield file


def ticking(step):
    ticks = itertools.count()
    return lambda: next(ticks) * step


def test_every_block_is_read_once_before_any_is_read_again(file, monkeypatch):
    offsets = []

    def open_spied_on(**options):
        reader = open_reader("preadv")
        submit = reader.submit
        reader.submit = lambda requests: (
            offsets.extend(request.offset for request in requests) or submit(requests)
        )
        return reader

    monkeypatch.setattr("uringinfer.diagnosis.read_clock.open_reader", open_spied_on)
    rate = clock_reads(file, 6.5, clock=ticking(1.0))
    assert len(offsets) == 6
    assert sorted(offsets[:3]) == sorted(offsets[3:]) == [0, BLOCK_BYTES, 2 * BLOCK_BYTES]
    assert rate.passes == 2


def test_the_rate_is_bytes_over_the_time_until_the_last_byte_came(file):
    rate = clock_reads(file, 4.5, clock=ticking(1.0))
    assert rate.nbytes == 4 * BLOCK_BYTES
    assert rate.seconds == 6.0
    assert rate.bytes_per_second == 4 * BLOCK_BYTES / 6.0


def test_a_file_shorter_than_a_block_is_not_clocked(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(bytes(4095))
    with open_file(path) as file:
        assert clock_reads(file, 1.0) is None
        assert clock_latency(file, 1.0) is None


def test_the_latency_is_the_time_over_reads_that_were_alone(file, monkeypatch):
    pending, most, reads = 0, 0, []

    def open_spied_on(**options):
        reader = open_reader("preadv")
        submit, wait = reader.submit, reader.wait

        def counting_submit(requests):
            nonlocal pending, most
            pending += len(requests)
            most = max(most, pending)
            reads.extend((request.offset, request.destination.size) for request in requests)
            return submit(requests)

        def counting_wait(ticket):
            nonlocal pending
            wait(ticket)
            pending -= 1

        reader.submit, reader.wait = counting_submit, counting_wait
        return reader

    monkeypatch.setattr("uringinfer.diagnosis.read_clock.open_reader", open_spied_on)
    assert clock_latency(file, 2.5, clock=ticking(0.5)) == 2.5 / 4  # it looks at the clock before each read
    assert (most, len(reads)) == (1, 4)
    assert all(nbytes == 4096 and offset % 4096 == 0 for offset, nbytes in reads)
