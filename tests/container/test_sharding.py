import json
import os

import pytest
from container_maker import make_container
from hypothesis import given
from hypothesis import strategies as st
from test_manifest import signed

from uringinfer.container import Container
from uringinfer.container.sharding import Sharding, read_sharding
from uringinfer.errors import IntegrityError
from uringinfer.packing.sharder import shard


@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.integers(0, 40))
def test_every_record_has_a_place_of_its_own_and_drives_have_no_gaps(pattern, experts):
    sharding = Sharding(tuple(f"/{n}" for n in range(5)), tuple(pattern), "k")
    places = [sharding.place(expert) for expert in range(experts)]
    assert [drive for drive, _ in places] == [pattern[e % len(pattern)] for e in range(experts)]
    for drive in range(5):
        numbers = [number for where, number in places if where == drive]
        assert numbers == list(range(sharding.count(drive, experts)))


GOOD = {"drives": ["/mnt/a", "/mnt/b"], "pattern": [0, 1, 0], "key": "0123"}


def test_a_sharding_reads_back_as_it_was_written():
    assert read_sharding(GOOD, "m").to_dict() == GOOD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drives": []}, "0 are not between 1 and 64"),
        ({"drives": [f"/{n}" for n in range(65)]}, "65 are not between"),
        ({"drives": ["mnt/a", "/mnt/b"]}, "'mnt/a' is no absolute path"),
        ({"drives": ["/mnt/../etc", "/mnt/b"]}, "'/mnt/../etc' is no absolute path"),
        ({"drives": ["/mnt/a", 5]}, "5 is no absolute path"),
        ({"drives": ["/mnt/a", "/mnt/a"]}, "a drive stands twice"),
        ({"pattern": []}, "0 entries"),
        ({"pattern": [0] * 1025}, "1025 entries"),
        ({"pattern": [0, 0]}, "or holds nothing"),
        ({"pattern": [0, 2]}, "pattern[1]: 2 is not between 0 and 1"),
        ({"pattern": [0, True]}, "True is not an integer"),
        ({"key": None}, "None is not a name"),
        ({"more": 1}, "unknown key 'more'"),
    ],
)
def test_a_hostile_sharding_is_refused(change, message):
    with pytest.raises(IntegrityError) as caught:
        read_sharding(GOOD | change, "m")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def sharded(tmp_path):
    make_container(tmp_path / "m.uring")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    shard(tmp_path / "m.uring", [tmp_path / "a", tmp_path / "b"])
    return tmp_path / "m.uring"


def drives(sharded):
    return [next((sharded.parent / name).iterdir()) for name in ("a", "b")]


def refusal(sharded):
    with pytest.raises(IntegrityError) as caught:
        Container.open(sharded)
    return str(caught.value)


def test_a_missing_drive_is_named(sharded):
    drives(sharded)[1].rename(sharded.parent / "b" / "moved")
    assert f"drive 2 of 2 is missing: {sharded.parent}/b/m.uring." in refusal(sharded)


def test_a_drive_of_another_container_is_told_apart(sharded):
    marker = drives(sharded)[0] / "shard.json"
    marker.write_text(json.dumps({"key": "other", "drive": 0, "drives": 2}))
    assert "drive 1 of 2" in refusal(sharded)
    assert "belongs to another container" in refusal(sharded)
    marker.unlink()
    assert f"cannot read {marker}: No such file" in refusal(sharded)


def test_a_manifest_alone_cannot_make_anybody_read_a_foreign_directory(sharded, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for path in drives(sharded)[0].iterdir():
        if path.name != "shard.json":
            (foreign / path.name).write_bytes(path.read_bytes())
    manifest = Container.open(sharded).manifest
    text = manifest.to_json().replace(manifest.sharding.drives[0], str(foreign))
    document = json.loads(text)
    (sharded / "manifest.json").write_text(signed(document))
    assert "shard.json" in refusal(sharded)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_bank_of_the_wrong_size_on_a_drive_is_named(sharded, change):
    path = drives(sharded)[1] / "experts-L1.bin"
    data = path.read_bytes()
    path.write_bytes(data[:-1] if change < 0 else data + b"x")
    assert f"{path}: holds {len(data) + change} bytes, {len(data)} by the manifest" in refusal(sharded)
    path.unlink()
    assert f"{path} is missing" in refusal(sharded)


def test_a_link_in_place_of_a_bank_is_refused(sharded, tmp_path):
    path = drives(sharded)[1] / "experts-L1.bin"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert "not a regular file" in refusal(sharded)


def test_a_pipe_in_the_markers_place_is_refused_without_waiting_for_its_writer(sharded):
    path = drives(sharded)[1] / "shard.json"
    path.unlink()
    os.mkfifo(path)
    assert "shard.json: is no regular file" in refusal(sharded)
