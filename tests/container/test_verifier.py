import json

import pytest
from container_maker import make_container

from uringinfer.container import verifier
from uringinfer.container.verifier import verify
from uringinfer.errors import IntegrityError


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setattr(verifier, "PIECE_BYTES", 4096)  # so that segments and records take several pieces
    make_container(tmp_path / "m.uring")
    return tmp_path / "m.uring"


def flip(path, offset, bit=0):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("reader_kind", ["auto", "preadv"])
@pytest.mark.parametrize("workers", [1, 3])
def test_an_undamaged_container_passes_with_every_byte_checked(directory, workers, reader_kind):
    report = verify(directory, workers=workers, reader_kind=reader_kind)
    assert report.ok
    assert report.nbytes == sum(
        (directory / n).stat().st_size
        for n in ("trunk.bin", "experts-L1.bin", "tokenizer.json", "row_checksums.bin")
    )
    assert report.targets == 5 + 6 + 2
    json.dumps(report.to_dict())


@pytest.mark.parametrize(
    ("file", "offset", "name"),
    [
        ("trunk.bin", 0, "segment embed/0 of trunk.bin at offset 0"),
        ("trunk.bin", 8191, "segment embed/0 of trunk.bin at offset 0"),
        ("trunk.bin", 8192, "segment layers.0/0 of trunk.bin at offset 8192"),
        ("trunk.bin", 36863, "segment head/0 of trunk.bin at offset 28672"),
        ("experts-L1.bin", 3 * 8192 - 1, "expert 2 of layer 1"),
        ("experts-L1.bin", 3 * 8192, "expert 3 of layer 1"),
        ("tokenizer.json", 4, "tokenizer.json"),
    ],
)
@pytest.mark.parametrize("bit", [0, 7])
def test_one_flipped_bit_is_found_and_named(directory, file, offset, name, bit):
    flip(directory / file, offset, bit)
    report = verify(directory)
    assert not report.ok
    assert len(report.damaged) == 1
    assert report.damaged[0].startswith(f"{name}: checksum mismatch (")


def test_every_damaged_part_is_named_in_order(directory):
    flip(directory / "trunk.bin", 5)
    flip(directory / "experts-L1.bin", 5)
    flip(directory / "experts-L1.bin", 5 * 8192)
    assert [line.partition(":")[0] for line in verify(directory).damaged] == [
        "segment embed/0 of trunk.bin at offset 0",
        "expert 0 of layer 1",
        "expert 5 of layer 1",
    ]


def test_swapped_pieces_are_found(directory):
    data = (directory / "trunk.bin").read_bytes()
    (directory / "trunk.bin").write_bytes(data[4096:8192] + data[:4096] + data[8192:])
    assert verify(directory).damaged[0].startswith("segment embed/0")


def test_a_flipped_bit_of_the_manifest_is_an_integrity_error(directory):
    flip(directory / "manifest.json", 60)
    with pytest.raises(IntegrityError, match=r"manifest\.json"):
        verify(directory)


def test_a_part_that_cannot_be_read_is_named_and_the_rest_is_still_checked(directory, monkeypatch):
    flip(directory / "experts-L1.bin", 0)
    real = verifier.open_reader

    def failing(*args, **kwargs):
        reader = real("preadv")
        wait, calls = reader.wait, iter(range(1000))

        def fail_once(ticket):
            wait(ticket)
            if next(calls) == 1:
                raise IntegrityError("trunk.bin: read of 4096 bytes at 4096 failed: Input/output error")

        reader.wait = fail_once
        return reader

    monkeypatch.setattr(verifier, "open_reader", failing)
    report = verify(directory)
    assert report.damaged[0] == (
        "segment embed/0 of trunk.bin at offset 0: unreadable:"
        " trunk.bin: read of 4096 bytes at 4096 failed: Input/output error"
    )
    assert report.damaged[1].startswith("expert 0 of layer 1: checksum mismatch")


def test_progress_reaches_the_total(directory):
    seen = []
    report = verify(directory, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (report.nbytes, report.nbytes)
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("flips", "outcome"), [([1], None), ([1, 1], "gave the same bytes"), ([1, 2], "gave other bytes")]
)
def test_what_was_read_damaged_is_read_again_before_it_is_called_damaged(
    directory, monkeypatch, flips, outcome
):
    real = verifier.open_reader

    def corrupting(*args, **kwargs):
        reader, left = real("preadv"), list(flips)
        submit, wait, requests = reader.submit, reader.wait, {}

        def remember(batch):
            ticket = submit(batch)
            requests[id(ticket)] = batch[0]
            return ticket

        def corrupt(ticket):
            wait(ticket)
            request = requests[id(ticket)]
            if request.file.path.name == "experts-L1.bin" and request.offset == 8192 and left:
                request.destination[7] ^= left.pop(0)

        reader.submit, reader.wait = remember, corrupt
        return reader

    monkeypatch.setattr(verifier, "open_reader", corrupting)
    report = verify(directory)
    if outcome is None:
        assert report.ok
        assert report.notes[0] == "expert 1 of layer 1 was read damaged and was right when it was read again"
    else:
        (line,) = report.damaged
        assert line.startswith("expert 1 of layer 1: checksum mismatch (")
        assert outcome in line
