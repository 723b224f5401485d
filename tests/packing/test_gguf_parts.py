"""Parts of a GGUF file: which stand for the model, and what is said of those that do not fit."""

import shutil

import pytest
from gguf_maker import make_gguf, weights

from uringinfer.errors import IntegrityError, UsageError
from uringinfer.packing.gguf import GgufSource
from uringinfer.packing.gguf_files import part_paths


def write_parts(directory, count=3, name="m"):
    """A tiny model in parts, as llama-gguf-split writes them: the first part has the metadata."""
    tensors = list(weights().items())
    directory.mkdir(exist_ok=True)
    paths = [directory / f"{name}-{number + 1:05d}-of-{count:05d}.gguf" for number in range(count)]
    for number, path in enumerate(paths):

        def split(writer, number=number):
            writer.add_uint16("split.no", number)
            writer.add_uint16("split.count", count)
            writer.add_int32("split.tensors.count", len(tensors))

        each = -(-len(tensors) // count)
        make_gguf(path, dict(tensors[number * each : (number + 1) * each]), extra=split)
    return paths


@pytest.fixture
def parts(tmp_path):
    return write_parts(tmp_path / "model")


def test_any_part_and_the_directory_stand_for_the_model(parts):
    for path in (*parts, parts[0].parent):
        assert part_paths(path) == parts
    source = GgufSource.open(parts[2])
    assert set(source.tensors) == set(weights())
    assert list(source.identity["files"]) == [part.name for part in parts]
    source.close()


def test_every_part_that_is_missing_is_named(parts):
    parts[0].unlink(), parts[2].unlink()
    with pytest.raises(IntegrityError, match=r"2 of 3 parts missing: m-00001-of-00003\.gguf, m-00003"):
        GgufSource.open(parts[1])


def test_a_part_under_anothers_name_is_named_with_its_number(parts):
    parts[1].rename(parts[1].with_name("aside"))
    parts[2].rename(parts[1])
    parts[1].with_name("aside").rename(parts[2])
    with pytest.raises(IntegrityError, match=r"m-00002-of-00003\.gguf: holds part 3; its name is that of"):
        GgufSource.open(parts[0])


def test_a_part_that_is_there_twice_is_named_with_its_twin(parts):
    shutil.copy(parts[1], parts[2])
    with pytest.raises(IntegrityError, match=r"00003-of-00003\.gguf: holds part 2, and so does m-00002"):
        GgufSource.open(parts[0])


def test_a_part_of_a_model_with_other_tensors_is_noticed(parts):
    def split(writer):
        writer.add_uint16("split.no", 2)
        writer.add_uint16("split.count", 3)

    make_gguf(parts[2], {"model.norm.weight": weights()["model.norm.weight"]}, extra=split)
    with pytest.raises(IntegrityError, match=r"stands in .* too|parts hold \d+ tensors of 21"):
        GgufSource.open(parts[0])


def test_a_part_whose_name_is_no_parts_says_how_it_should_be_called(parts):
    alone = parts[1].rename(parts[1].with_name("renamed.gguf"))
    with pytest.raises(IntegrityError, match=r"is part 2 of 3, .*; name its parts NAME-00001-of-00003\.gguf"):
        GgufSource.open(alone)


def test_a_directory_with_two_models_asks_for_one_of_them(parts):
    write_parts(parts[0].parent, 2, "other")
    with pytest.raises(UsageError, match=r"holds 2 GGUF models: m-\*-of-00003, other-\*-of-00002"):
        part_paths(parts[0].parent)


def test_a_vision_tower_beside_the_model_is_not_taken_for_one(parts):
    shutil.copy(parts[0], parts[0].with_name("mmproj-F16.gguf"))
    assert part_paths(parts[0].parent) == parts
