"""Files that stand in a checkpoint's place are called what they are."""

import shutil
from pathlib import Path

import pytest

from tests.packing.checkpoint_maker import make_checkpoint
from uringinfer.errors import IntegrityError
from uringinfer.packing.checkpoint import INDEX_NAME, CheckpointSource
from uringinfer.packing.sources import open_source

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 4976698672\n"
)
SHARD = "model-00002-of-00004.safetensors"


@pytest.fixture
def checkpoint(tmp_path):
    return make_checkpoint(tmp_path / "hf")


@pytest.mark.parametrize("name", [SHARD, "tokenizer.json", "config.json", INDEX_NAME])
def test_a_git_lfs_pointer_is_called_that_with_the_size_of_the_file(checkpoint, name):
    (checkpoint / name).write_bytes(POINTER)
    with pytest.raises(IntegrityError, match=rf"{name}: is a Git-LFS pointer, not the file of 4\.63 GiB"):
        dict(open_source(checkpoint).auxiliary_files())


def test_a_pointer_in_the_place_of_a_gguf_file_is_called_that(tmp_path):
    (tmp_path / "m.gguf").write_bytes(POINTER)
    with pytest.raises(IntegrityError, match=r"m\.gguf: is a Git-LFS pointer"):
        open_source(tmp_path / "m.gguf")


def test_a_web_page_in_the_place_of_a_file_is_called_that(checkpoint):
    (checkpoint / SHARD).write_bytes(b"<!DOCTYPE html><html><title>Sign in</title></html>")
    with pytest.raises(IntegrityError, match="is a web page"):
        open_source(checkpoint)


def test_a_file_that_was_allocated_and_not_fetched_is_called_unfinished(checkpoint):
    (checkpoint / SHARD).write_bytes(bytes((checkpoint / SHARD).stat().st_size))
    with pytest.raises(IntegrityError, match="begins with zeros: its download did not finish"):
        open_source(checkpoint)


@pytest.mark.parametrize("place", ["", ".cache/huggingface/download"])
def test_a_download_that_goes_on_is_named_beside_the_missing_file(checkpoint, place):
    (checkpoint / SHARD).unlink()
    (checkpoint / place).mkdir(parents=True, exist_ok=True)
    (checkpoint / place / f"{SHARD}.4d7a.incomplete").write_bytes(b"")
    with pytest.raises(IntegrityError, match=rf"{SHARD} is being downloaded.*\.4d7a\.incomplete"):
        open_source(checkpoint)


@pytest.mark.parametrize("name", [SHARD, "tokenizer.json"])
def test_a_link_to_a_blob_that_is_not_there_is_named(checkpoint, name):
    (checkpoint / name).unlink()
    (checkpoint / name).symlink_to("../../blobs/4d7a2146")
    with pytest.raises(IntegrityError, match=r"is a link to \.\./\.\./blobs/4d7a2146, which is not there"):
        dict(open_source(checkpoint).auxiliary_files())


def test_a_whole_model_beside_a_stale_index_is_used_with_a_note(tmp_path):
    whole = make_checkpoint(tmp_path / "whole", shard_bytes=1 << 30)
    sharded = make_checkpoint(tmp_path / "sharded")
    shutil.copy(sharded / INDEX_NAME, whole / INDEX_NAME)
    (only,) = Path(whole).glob("*.safetensors")
    if only.name != "model.safetensors":
        only.rename(whole / "model.safetensors")
    source = CheckpointSource.open(whole)
    assert len(source.tensors) == len(CheckpointSource.open(sharded).tensors)
    assert "names 4 files that are not there" in source.notes[0]
    assert "taken from model.safetensors, which is whole" in source.notes[0]


def test_an_index_whose_shards_are_there_is_followed_whatever_lies_beside_it(checkpoint, tmp_path):
    (checkpoint / "model.safetensors").write_bytes(b"not the model")
    assert CheckpointSource.open(checkpoint).notes == []


def test_a_config_of_a_gigabyte_is_refused_before_it_is_read(checkpoint):
    with (checkpoint / "config.json").open("r+b") as file:
        file.truncate(1 << 30)
    with pytest.raises(IntegrityError, match=r"config\.json: 1\.00 GiB, more than any config\.json"):
        open_source(checkpoint)
