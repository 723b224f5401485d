import os
import sys
from pathlib import Path

import pytest
from tiny_models import write_tiny_checkpoint

sys.path.append(str(Path(__file__).parents[1] / "packing"))
from test_gguf_parts import write_parts

from uringinfer.engine import source
from uringinfer.engine.opening import open_model
from uringinfer.engine.source import find_container
from uringinfer.errors import EnvironmentError_, UsageError


def test_a_container_is_itself(packed):
    assert find_container(packed()) == packed()


def test_a_checkpoint_is_packed_once_and_announced(tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "model", layers=1)
    told, steps = [], []
    first = find_container(checkpoint, tmp_path / "cache", lambda *step: steps.append(step), told.append)
    again = find_container(checkpoint, tmp_path / "cache", announce=told.append)
    assert first == again
    assert len(told) == 1 and str(first) in told[0]
    assert steps[-1][0] == "packing" and steps[-1][1] == steps[-1][2]
    assert open_model(first).model.num_layers == 1


def test_a_changed_checkpoint_is_packed_anew(tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "model", layers=1)
    first = find_container(checkpoint, tmp_path / "cache")
    os.utime(checkpoint / "config.json", ns=(1, 1))
    assert find_container(checkpoint, tmp_path / "cache") != first


def test_any_part_of_a_gguf_file_and_its_directory_are_packed_once(tmp_path):
    parts = write_parts(tmp_path / "model")
    first = find_container(parts[1], tmp_path / "cache")
    assert first.name.startswith("m-00001-of-00003-")
    for path in (parts[0], parts[2], parts[0].parent):
        assert find_container(path, tmp_path / "cache") == first


def test_the_cache_directory_of_the_user_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    checkpoint = write_tiny_checkpoint(tmp_path / "model", layers=1)
    assert find_container(checkpoint).parent == tmp_path / "xdg" / "uringinfer"


def test_a_cache_directory_that_cannot_be_made_is_named(tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "model", layers=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(
        EnvironmentError_, match=r"cannot write to .*/file/model-\w+\.uring\.partial: Not a dir"
    ):
        find_container(checkpoint, tmp_path / "file")


def test_what_is_no_model_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    for name, what in (("empty", "is neither"), ("notes.txt", "is neither"), ("none", "does not exist")):
        with pytest.raises(UsageError, match=f"{name} {what}"):
            find_container(tmp_path / name, tmp_path / "cache")


def test_a_container_of_an_older_format_in_the_cache_is_packed_anew(tmp_path, monkeypatch):
    checkpoint = write_tiny_checkpoint(tmp_path / "model", layers=1)
    packed = find_container(checkpoint, tmp_path / "cache")
    monkeypatch.setattr(source, "FORMAT_VERSION", source.FORMAT_VERSION + 1)
    assert find_container(checkpoint, tmp_path / "cache") != packed
