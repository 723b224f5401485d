"""A GGUF model in parts gives back its space part by part, and an interrupted pack goes on all the same."""

import pytest
from test_gguf_parts import write_parts

from uringinfer.errors import IntegrityError, UsageError
from uringinfer.packing.gguf import GgufSource
from uringinfer.packing.packer import _Job, pack


def contents(container):
    return {file.name: file.read_bytes() for file in sorted(container.iterdir())}


def taken(*directories):
    """Bytes that files take on the drive."""
    return sum(f.stat().st_blocks * 512 for d in directories if d.is_dir() for f in d.iterdir())


@pytest.fixture
def parts(tmp_path):
    return write_parts(tmp_path / "model")


@pytest.fixture
def whole(parts, tmp_path):
    """What packing without giving anything back makes."""
    pack(parts[0], tmp_path / "whole.uring")
    return contents(tmp_path / "whole.uring")


def test_parts_go_one_by_one_and_the_container_is_the_same(parts, whole, tmp_path):
    out = tmp_path / "m.uring"
    given_back = sum(part.stat().st_size for part in parts)
    report = pack(parts[1], out, reclaim_checkpoint=True)
    assert contents(out) == whole
    assert not any(part.exists() for part in parts)
    assert report.reclaimed_bytes == given_back


def test_no_more_space_is_taken_than_by_the_container_and_one_part(parts, whole, tmp_path, monkeypatch):
    partial, peaks = tmp_path / "m.uring.partial", []
    give_back = GgufSource.give_back

    def watched(source, part):
        peaks.append(taken(partial, parts[0].parent))
        return give_back(source, part)

    monkeypatch.setattr(GgufSource, "give_back", watched)
    largest = max(part.stat().st_size for part in parts)
    pack(parts[0], tmp_path / "m.uring", segment=4096, reclaim_checkpoint=True)
    container = sum(map(len, whole.values()))
    assert len(peaks) == 3
    assert max(peaks) < container + largest + 8 * 4096  # of blocks that files do not fill


@pytest.fixture
def interrupted(parts, tmp_path, monkeypatch):
    """A pack into `m.uring` that ended behind its first part."""
    give_back = GgufSource.give_back

    def once(source, part):
        if part > 0:
            raise KeyboardInterrupt
        return give_back(source, part)

    monkeypatch.setattr(GgufSource, "give_back", once)
    with pytest.raises(KeyboardInterrupt):
        pack(parts[0], tmp_path / "m.uring", reclaim_checkpoint=True)
    monkeypatch.undo()
    assert parts[0].stat().st_size < 4096
    return parts


@pytest.mark.parametrize("reclaiming", [True, False])
def test_an_interrupted_pack_goes_on_without_the_parts_it_gave_back(whole, interrupted, tmp_path, reclaiming):
    pack(interrupted[2], tmp_path / "m.uring", reclaim_checkpoint=reclaiming)
    assert contents(tmp_path / "m.uring") == whole
    assert any(part.exists() for part in interrupted) != reclaiming


def test_what_was_given_back_is_packed_nowhere_else(interrupted, tmp_path):
    with pytest.raises(UsageError, match=r"00001-of-00003\.gguf: its weights were given back.*goes on where"):
        pack(interrupted[0], tmp_path / "other.uring")
    with pytest.raises(UsageError, match="its weights were given back"):
        pack(interrupted[0], tmp_path / "m.uring", segment=4096)
    assert (tmp_path / "m.uring.partial" / "trunk.bin").stat().st_size > 0


def test_a_part_stays_whole_if_what_was_made_of_it_reads_back_otherwise(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(_Job, "_checksum_on_disk", lambda *_: 0)
    sizes = [part.stat().st_size for part in parts]
    with pytest.raises(IntegrityError, match="are not what was written"):
        pack(parts[0], tmp_path / "m.uring", reclaim_checkpoint=True)
    assert [part.stat().st_size for part in parts] == sizes


def test_a_file_with_two_names_is_left_whole_until_the_end(parts, tmp_path):
    for part in parts:
        (tmp_path / part.name).hardlink_to(part)
    sizes = [part.stat().st_size for part in parts]
    pack(parts[0], tmp_path / "m.uring", reclaim_checkpoint=True)
    assert [(tmp_path / part.name).stat().st_size for part in parts] == sizes


def test_converting_gives_back_at_the_end_alone(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(GgufSource, "give_back", lambda *_: pytest.fail("too early"))
    pack(parts[0], tmp_path / "m.uring", trunk="q8", reclaim_checkpoint=True)
    assert not any(part.exists() for part in parts)
