"""The error report in a manifest: it reads back as written, and is as hostile as the rest."""

import json
import zlib
from dataclasses import replace

import pytest
from container_maker import make_container

from uringinfer.container import Container
from uringinfer.container.kind_errors import KindError
from uringinfer.container.manifest_reader import load_manifest
from uringinfer.container.summary import summarise
from uringinfer.errors import IntegrityError

ERRORS = (
    KindError("mlp.up_proj", "bf16", "q4", 30, 0.1061, 0.1102, "layers.20.mlp.up_proj"),
    KindError("experts.gate", "Q8_0", "q8", 896, 0.0, 0.0, "layers.0.experts.7.gate"),
)


@pytest.fixture
def directory(tmp_path):
    manifest = make_container(tmp_path / "m.uring")
    (tmp_path / "m.uring" / "manifest.json").write_text(replace(manifest, errors=ERRORS).to_json())
    return tmp_path / "m.uring"


def test_errors_read_back_as_they_were_written(directory):
    assert load_manifest(directory).errors == ERRORS
    assert summarise(Container.open(directory)).errors == ERRORS


def test_a_manifest_without_errors_has_none(tmp_path):
    make_container(tmp_path / "m.uring")
    assert load_manifest(tmp_path / "m.uring").errors == ()


def test_a_whole_number_is_a_number(directory):
    text = json.loads((directory / "manifest.json").read_text())
    text["errors"][1] |= {"mean": 0, "worst": 1}
    write_signed(directory, text)
    assert load_manifest(directory).errors[1].worst == 1.0


def write_signed(directory, document):
    document.pop("manifest_crc32")
    text = json.dumps(document)[:-1] + ",\n"
    crc = zlib.crc32(text.encode())
    (directory / "manifest.json").write_text(f'{text}"manifest_crc32": "{crc:08x}"\n}}\n')


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("kind", "a\nb", "'a\\nb' is not a name"),
        ("origin", 4, "4 is not a name"),
        ("format", "q99", "format: 'q99' is unknown"),
        ("tensors", 0, "0 is not between 1"),
        ("tensors", True, "True is not an integer"),
        ("mean", "0.1", "'0.1' is not a number"),
        ("mean", True, "True is not a number"),
        ("mean", -0.1, "-0.1 is not between 0"),
        ("mean", float("nan"), "nan is not between 0"),
        ("worst", float("inf"), "inf is not between 0"),
        ("worst", 1e300, "1e+300 is not between 0"),
        ("worst", 0.1, "mean: 0.1061 is more than the worst, 0.1"),
        ("worst_tensor", "x" * 300, "is not a name"),
        ("extra", 1, "unknown key 'extra'"),
    ],
)
def test_a_hostile_value_is_refused_by_name(directory, key, value, message):
    document = json.loads((directory / "manifest.json").read_text())
    document["errors"][0][key] = value
    write_signed(directory, document)
    with pytest.raises(IntegrityError) as caught:
        load_manifest(directory)
    assert "manifest.json: errors[0]: " in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_that_are_no_list_are_refused(directory):
    document = json.loads((directory / "manifest.json").read_text())
    document["errors"] = {}
    write_signed(directory, document)
    with pytest.raises(IntegrityError, match=r"errors: \{\} is not a list"):
        load_manifest(directory)
