import json

import pytest

from tests.container.container_maker import make_container
from uringinfer.container import Container
from uringinfer.container.verifier import verify
from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.packing import sharder, staging
from uringinfer.packing.sharder import make_pattern, shard


@pytest.fixture
def container(tmp_path):
    make_container(tmp_path / "m.uring", experts=7)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    return tmp_path / "m.uring"


def contents(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def records(path):
    """The bytes of every record, wherever it lies."""
    container = Container.open(path)
    bank = container.banks[1]
    files = [file.read_bytes() for file in container.bank_paths(bank)]
    places = [container.record_place(bank, expert) for expert in range(bank.num_experts)]
    return [files[number][offset : offset + bank.record_bytes] for number, offset in places]


@pytest.mark.parametrize(
    ("weights", "pattern"),
    [
        ([1, 1], (0, 1)),
        ([1.0, 1.0, 1.0], (0, 1, 2)),
        ([2, 1], (0, 1, 0)),
        ([1, 3], (1, 0, 1, 1)),
        ([5], (0,)),
    ],
)
def test_each_drive_gets_its_share_in_turn(weights, pattern):
    assert make_pattern(weights) == pattern


def test_measured_rates_are_kept_to_a_64th():
    pattern = make_pattern([2.61e9, 1.27e9, 0.64e9])
    shares = [pattern.count(drive) / len(pattern) for drive in range(3)]
    assert len(pattern) == 64
    assert shares == pytest.approx([0.577, 0.281, 0.142], abs=1 / 64)


@pytest.mark.parametrize("weights", [[], [1, 0], [1, -1], [1, 1e-9]])
def test_weights_that_give_a_drive_nothing_are_refused(weights):
    with pytest.raises(UsageError):
        make_pattern(weights)


@pytest.mark.parametrize("drives", [("a",), ("a", "b"), ("a", "b", "c")])
def test_records_lie_on_their_drives_bit_for_bit_and_leave_the_container(container, drives):
    before = records(container)
    report = shard(container, [container.parent / name for name in drives])
    assert not (container / "experts-L1.bin").exists()
    assert records(container) == before
    assert verify(container).ok
    assert sum(drive.records for drive in report.drives) == report.records == 7
    for number, name in enumerate(drives):
        (directory,) = (container.parent / name).iterdir()
        assert (directory / "experts-L1.bin").read_bytes() == b"".join(before[number :: len(drives)])
    json.dumps(report.to_dict())


def test_a_faster_drive_gets_more_records(container):
    report = shard(container, [container.parent / "a", container.parent / "b"], weights=[2, 1])
    assert [drive.records for drive in report.drives] == [5, 2]
    assert verify(container).ok


def test_records_come_back_as_they_were_and_the_drives_are_empty(container):
    before = contents(container)
    shard(container, [container.parent / "a", container.parent / "b"])
    shard(container, [])
    assert contents(container) == before
    assert not list((container.parent / "a").iterdir())
    assert sorted(path.name for path in container.parent.iterdir()) == ["a", "b", "c", "m.uring"]


def test_records_move_on_from_drives_to_other_drives(container):
    before = records(container)
    shard(container, [container.parent / "a", container.parent / "b"])
    shard(container, [container.parent / "b", container.parent / "c"])
    assert records(container) == before
    assert not list((container.parent / "a").iterdir())
    assert len(list((container.parent / "b").iterdir())) == 1


def test_the_same_sharding_again_moves_nothing(container, monkeypatch):
    drives = [container.parent / "a", container.parent / "b"]
    first = shard(container, drives)
    monkeypatch.setattr(sharder, "_Move", None)
    assert shard(container, drives) == first


def test_sharding_does_not_change_the_fingerprint(container):
    before = Container.open(container).fingerprint
    shard(container, [container.parent / "a"])
    assert Container.open(container).fingerprint == before


def test_a_damaged_record_is_named_and_nothing_moves(container):
    path = container / "experts-L1.bin"
    data = bytearray(path.read_bytes())
    data[4 * 8192] ^= 1
    path.write_bytes(data)
    before = contents(container.parent)
    with pytest.raises(IntegrityError, match=r"expert 4 of layer 1: checksum mismatch .*nothing was moved"):
        shard(container, [container.parent / "a", container.parent / "b"])
    assert contents(container.parent) == before


@pytest.mark.parametrize("step", range(1, 12))
def test_stopped_at_any_step_the_container_is_whole_and_the_move_can_be_done_again(
    container, monkeypatch, step
):
    before = records(container)
    calls = 0

    def stopping(real):
        def call(*args):
            nonlocal calls
            calls += 1
            if calls == step:
                raise KeyboardInterrupt
            return real(*args)

        return call

    drives = [container.parent / "a", container.parent / "b"]
    with monkeypatch.context() as patch:
        for name in ("sync_directory", "write_synced", "_copy_record"):
            patch.setattr(sharder, name, stopping(getattr(sharder, name)))
        try:
            shard(container, drives)
        except KeyboardInterrupt:
            assert records(container) == before
    shard(container, drives)
    assert records(container) == before
    assert not (container / "experts-L1.bin").exists()
    assert [len(list(drive.iterdir())) for drive in drives] == [1, 1]


def test_too_little_space_is_counted_over_drives_of_one_file_system(container, monkeypatch):
    class Status:
        f_bavail, f_frsize = 10, 4096  # either half fits, both do not

    monkeypatch.setattr(staging.os, "statvfs", lambda path: Status)
    with pytest.raises(EnvironmentError_, match=r"57344 bytes\) needed"):
        shard(container, [container.parent / "a", container.parent / "b"])


@pytest.mark.parametrize(
    ("directories", "weights", "message"),
    [
        (["absent"], None, "is no directory"),
        (["a", "a"], None, "a drive stands twice"),
        (["a", "b/../a"], None, "a drive stands twice"),
        (["a"], [1, 2], "2 weights for 1 drive$"),
    ],
)
def test_drives_that_cannot_be_are_refused(container, directories, weights, message):
    with pytest.raises(UsageError, match=message):
        shard(container, [container.parent / name for name in directories], weights=weights)


def test_a_damaged_record_of_a_drive_is_named_with_its_file_and_place(container):
    shard(container, [container.parent / "a", container.parent / "b"])
    opened = Container.open(container)
    bank = next(iter(opened.banks.values()))
    drive, offset = opened.record_place(bank, 3)
    path = opened.bank_paths(bank)[drive]
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    (line,) = verify(container).damaged
    assert line.startswith(f"expert 3 of layer {bank.layer} in {path} at offset {offset}: checksum mismatch")


def test_a_dense_model_has_nothing_to_spread(tmp_path):
    from tests.packing.checkpoint_maker import make_checkpoint
    from uringinfer.packing import pack

    pack(make_checkpoint(tmp_path / "m"), tmp_path / "m.uring")
    with pytest.raises(UsageError, match="has no experts to spread"):
        shard(tmp_path / "m.uring", [tmp_path])


def test_progress_reaches_the_total(container):
    seen = []
    shard(container, [container.parent / "a"], progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (7 * 8192, 7 * 8192)
