import json
import os
import socket

import numpy as np
import pytest
from checkpoint_maker import edit_json, make_checkpoint, raw_tensors, write_shard

from uringinfer.errors import IntegrityError, UnsupportedModelError, UsageError
from uringinfer.packing.checkpoint import CheckpointSource

INDEX = "model.safetensors.index.json"


@pytest.fixture
def directory(tmp_path):
    return make_checkpoint(tmp_path / "m")


def refusal(directory, kind=IntegrityError):
    with pytest.raises(kind) as caught:
        CheckpointSource.open(directory)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_row_range_reads_as_the_safetensors_library_reads_it(directory):
    source = CheckpointSource.open(directory)
    expected = raw_tensors(directory)
    assert source.tensors.keys() == expected.keys()
    for name, tensor in source.tensors.items():
        for start, stop in [(0, tensor.rows), (tensor.rows // 3, tensor.rows // 2)]:
            out = np.empty((stop - start) * tensor.row_bytes, np.uint8)
            source.read_rows(name, start, stop, out)
            assert out.tobytes() == expected[name][start * tensor.row_bytes : stop * tensor.row_bytes]
    source.close()


def test_a_missing_shard_named_by_the_index_is_named(directory):
    shards = sorted(directory.glob("*.safetensors"))
    shards[1].unlink()
    message = refusal(directory)
    assert f"1 of {len(shards)} shards named by {INDEX} missing: {shards[1].name}" in message


def test_every_short_shard_is_named(directory):
    for shard in sorted(directory.glob("*.safetensors"))[:2]:
        shard.write_bytes(shard.read_bytes()[:-10])
    message = refusal(directory)
    assert "2 shards are damaged" in message
    assert message.count("10 bytes short") == 2
    assert "resume the download" in message


def test_a_tensor_that_the_index_names_and_its_shard_lacks_is_named(directory):
    edit_json(directory / INDEX, lambda i: i["weight_map"].update(extra=next(iter(i["weight_map"].values()))))
    assert "names tensors that their shards do not hold: 'extra' in model-00001" in refusal(directory)


def test_a_tensor_that_a_shard_holds_and_the_index_lacks_is_named(directory):
    edit_json(directory / INDEX, lambda i: i["weight_map"].pop("model.norm.weight"))
    assert "does not name tensors that shards hold: 'model.norm.weight' in" in refusal(directory)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", 5, None])
def test_an_index_cannot_point_out_of_the_directory(directory, name):
    edit_json(directory / INDEX, lambda i: i["weight_map"].update({"model.norm.weight": name}))
    assert "is not a plain file name" in refusal(directory)


def test_an_index_that_is_damaged_is_refused(directory):
    (directory / INDEX).write_text('{"weight_map": {"a": ')
    assert f"{INDEX}: not valid JSON" in refusal(directory)


@pytest.mark.parametrize("name", ["config.json", INDEX, "tokenizer.json", "*.safetensors"])
def test_a_pipe_in_a_files_place_is_refused_without_waiting_for_its_writer(directory, name):
    path = next(directory.glob(name))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(IntegrityError, match=f"{path.name}: is no regular file"):
        CheckpointSource.open(directory).auxiliary_files()


def test_a_socket_in_a_shards_place_is_refused(directory, monkeypatch):
    monkeypatch.chdir(directory)  # a socket's address must be short
    shard = next(directory.glob("*.safetensors"))
    shard.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(shard.name)
        assert f"{shard.name}: is no regular file" in refusal(directory)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"{", "not valid JSON"), (b"\xff", "not valid JSON"), (b"[1]", "no JSON object")],
)
def test_a_damaged_tokenizer_is_named_before_it_is_copied(directory, content, problem):
    (directory / "tokenizer.json").write_bytes(content)
    source = CheckpointSource.open(directory)
    with pytest.raises(IntegrityError, match=f"tokenizer.json: .*{problem}"):
        source.auxiliary_files()
    source.close()


def test_a_single_file_needs_no_index(tmp_path):
    directory = make_checkpoint(tmp_path / "m", shard_bytes=1 << 30)
    (directory / INDEX).unlink()
    assert "lm_head.weight" in CheckpointSource.open(directory).tensors


def test_several_shards_without_an_index_may_be_incomplete(directory):
    (directory / INDEX).unlink()
    assert f"but no {INDEX}" in refusal(directory)


def test_pickled_weights_are_told_from_none_at_all(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert "holds no safetensors file" in refusal(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert "holds pickled weights" in refusal(tmp_path, UnsupportedModelError)


def test_a_missing_or_damaged_config_is_named(directory):
    (directory / "config.json").write_text("[1]")
    assert "config.json: holds [1], not a JSON object" in refusal(directory)
    (directory / "config.json").unlink()
    assert "config.json is missing" in refusal(directory)


def test_a_path_that_is_no_directory_is_a_usage_error(tmp_path):
    assert "is no directory" in refusal(tmp_path / "absent", UsageError)


def test_the_state_changes_when_a_file_is_written_to(directory):
    source = CheckpointSource.open(directory)
    before = source.state()
    assert source.state() == before
    (directory / "tokenizer.json").write_text("{}")
    assert source.state() != before


def test_the_identity_follows_the_content_of_the_headers_and_not_the_time(directory, tmp_path):
    twin = make_checkpoint(tmp_path / "elsewhere" / "m")
    other = make_checkpoint(tmp_path / "other" / "m", hidden=128)
    identity = CheckpointSource.open(directory).identity
    assert CheckpointSource.open(twin).identity == identity
    assert CheckpointSource.open(other).identity != identity
    json.dumps(identity)


def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path):
    header = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    path = write_shard(tmp_path / "model.safetensors", header, bytes(24))
    (tmp_path / "config.json").write_text("{}")
    source = CheckpointSource.open(tmp_path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 12)
    with pytest.raises(IntegrityError, match="12 bytes before the end of the read"):
        source.read_rows("a", 0, 2, np.empty(24, np.uint8))
