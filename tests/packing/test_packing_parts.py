"""Packing in parts gives the same container; reclaiming deletes nothing that is not safe elsewhere."""

import pytest
from checkpoint_maker import make_checkpoint

from uringinfer.container import Container
from uringinfer.container.verifier import verify
from uringinfer.errors import IntegrityError, UsageError
from uringinfer.models import model_from_config
from uringinfer.packing import layout, packer
from uringinfer.packing.checkpoint import CheckpointSource
from uringinfer.packing.packer import pack
from uringinfer.packing.parts import blocks_of_layers
from uringinfer.packing.reclaim import check_asked


@pytest.fixture
def checkpoint(tmp_path):
    return make_checkpoint(tmp_path / "m")


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_parts_and_the_pack_that_finishes_them_give_the_bytes_of_one_pack(checkpoint, tmp_path):
    pack(checkpoint, tmp_path / "whole.uring", segment=8192)
    for layers in ((1, 1), (0, 0)):
        report = pack(checkpoint, tmp_path / "parts.uring", segment=8192, layers=layers)
        assert not report.complete and not (tmp_path / "parts.uring").exists()
    report = pack(checkpoint, tmp_path / "parts.uring", segment=8192)
    assert report.complete and report.written_bytes == 0
    assert contents(tmp_path / "parts.uring") == contents(tmp_path / "whole.uring")


def test_a_part_is_its_layers_and_what_stands_at_the_ends(checkpoint, tmp_path):
    source = CheckpointSource.open(checkpoint)
    whole = layout.make_layout(model_from_config(source.config), source, 8192)
    source.close()
    groups = [segment.group for segment in whole.manifest.segments]
    parts = [{groups[index] for index in blocks_of_layers(whole, (layer, layer))} for layer in (0, 1)]
    assert parts == [{"embedding", "layers.0"}, {"layers.1", "head"}]


def test_experts_go_with_their_layer():
    bank = layout.Bank(3, "experts-L3.bin", 5, 4096, (), (0,) * 5)
    manifest = layout.Manifest(1, "fake", {}, {}, "trunk.bin", (), (bank,), ())
    blocks = tuple(layout.Block("experts-L3.bin", 4096 * n, 4096, list) for n in range(5))
    assert blocks_of_layers(layout.Layout(manifest, blocks, None), (3, 3)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("layers", [(0, 2), (1, 0), (2, 2)])
def test_layers_that_are_not_there_are_refused_before_anything_is_written(checkpoint, tmp_path, layers):
    with pytest.raises(UsageError, match="has 0 to 1 here"):
        pack(checkpoint, tmp_path / "m.uring", layers=layers)
    assert not list(tmp_path.glob("*.uring*"))


def test_a_head_is_cut_even_where_every_layer_is_one_segment(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "MAX_AUTO_BYTES", 16384)
    pack(checkpoint, tmp_path / "m.uring", segment="layer")
    segments = Container.open(tmp_path / "m.uring").segments
    counts = {group: sum(segment.group == group for segment in segments) for group in ("layers.1", "head")}
    assert counts["layers.1"] == 1 and counts["head"] > 1
    assert max(segment.nbytes for segment in segments if segment.group == "head") <= 16384


def test_a_dry_run_without_space_says_so_and_still_shows_the_layout(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(packer, "lacking_space", lambda path, needed: f"{needed} bytes needed")
    report = pack(checkpoint, tmp_path / "m.uring", dry_run=True)
    assert report.notes == (f"{report.nbytes} bytes needed",)


def test_reclaiming_deletes_the_weights_and_keeps_the_rest(checkpoint, tmp_path):
    weights = sum(path.stat().st_size for path in checkpoint.glob("*.safetensors"))
    report = pack(checkpoint, tmp_path / "m.uring", reclaim_checkpoint=True)
    assert report.reclaimed_bytes == weights
    assert not list(checkpoint.glob("*.safetensors"))
    assert (checkpoint / "config.json").exists() and verify(tmp_path / "m.uring").ok


def test_reclaiming_follows_links_to_where_the_bytes_are(checkpoint, tmp_path):
    (tmp_path / "blobs").mkdir()
    for path in list(checkpoint.glob("*.safetensors")):
        target = tmp_path / "blobs" / path.name
        path.rename(target)
        path.symlink_to(target)
    report = pack(checkpoint, tmp_path / "m.uring", reclaim_checkpoint=True)
    assert report.reclaimed_bytes > 0 and not list((tmp_path / "blobs").iterdir())
    assert not list(checkpoint.glob("*.safetensors"))


def test_nothing_is_deleted_if_the_container_does_not_verify(checkpoint, tmp_path, monkeypatch):
    real = packer.reclaim

    def damaged(source, names, container):
        with (container / "trunk.bin").open("r+b") as file:
            file.write(b"\xff")
        return real(source, names, container)

    monkeypatch.setattr(packer, "reclaim", damaged)
    before = contents(checkpoint)
    with pytest.raises(IntegrityError, match="the checkpoint was not touched"):
        pack(checkpoint, tmp_path / "m.uring", reclaim_checkpoint=True)
    assert contents(checkpoint) == before


def test_deleting_must_be_asked_for_twice():
    assert (check_asked(0), check_asked(2)) == (False, True)
    for times in (1, 3):
        with pytest.raises(UsageError, match="give it twice to mean it"):
            check_asked(times)
