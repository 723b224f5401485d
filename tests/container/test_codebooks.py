import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "packing"))
from checkpoint_maker import make_checkpoint

from uringinfer.container import Container
from uringinfer.container.codebooks import (
    CODEBOOKS_NAME,
    codebook_stages,
    pack_codebooks,
    read_codebooks,
)
from uringinfer.container.manifest_reader import read_manifest
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.packing.packer import pack


@pytest.fixture
def path(tmp_path):
    rules = ((r"layers\.1\.mlp\.up_proj", "vq3"), (r"layers\.0\.self_attn\.k_proj", "vq1"))
    pack(make_checkpoint(tmp_path / "m"), tmp_path / "m.uring", tensors=rules, segment=4096)
    return tmp_path / "m.uring"


def test_codebooks_lie_in_the_order_of_execution_as_float16(path):
    manifest = Container.open(path).manifest
    stages = {"layers.0.self_attn.k_proj": 1, "layers.1.mlp.up_proj": 3}
    assert list(codebook_stages(manifest.segments, manifest.banks).items()) == list(stages.items())
    content = np.fromfile(path / CODEBOOKS_NAME, np.float16)
    codebooks = read_codebooks(path, manifest)
    np.testing.assert_array_equal(codebooks["layers.0.self_attn.k_proj"].reshape(-1), content[:2048])
    np.testing.assert_array_equal(codebooks["layers.1.mlp.up_proj"].reshape(-1), content[2048:])
    assert codebooks["layers.1.mlp.up_proj"].shape == (3, 256, 8)
    assert pack_codebooks(list(codebooks.values())) == content.tobytes()


def test_a_container_without_such_formats_has_no_file(tmp_path):
    pack(make_checkpoint(tmp_path / "m"), tmp_path / "m.uring", trunk="q4")
    assert not (tmp_path / "m.uring" / CODEBOOKS_NAME).exists()
    assert read_codebooks(tmp_path / "m.uring", Container.open(tmp_path / "m.uring").manifest) == {}


@pytest.mark.parametrize("listed", [None, 4 * 4096 - 1, 5 * 4096])
def test_a_manifest_must_list_the_file_with_the_size_that_the_formats_need(path, listed):
    manifest = Container.open(path).manifest
    files = [
        file if file.name != CODEBOOKS_NAME else replace(file, nbytes=listed)
        for file in manifest.files
        if file.name != CODEBOOKS_NAME or listed is not None
    ]
    text = replace(manifest, files=tuple(files)).to_json().encode()
    with pytest.raises(IntegrityError, match=rf"codebooks\.bin of {listed or 0} bytes, 16384 by the formats"):
        read_manifest(text)


def test_a_file_that_no_format_needs_is_refused(path):
    manifest = replace(Container.open(path).manifest, segments=())
    with pytest.raises(IntegrityError, match=r"codebooks\.bin of 16384 bytes, 0 by the formats"):
        read_manifest(manifest.to_json().encode())


def test_a_missing_file_is_named(path):
    manifest = Container.open(path).manifest
    (path / CODEBOOKS_NAME).unlink()
    with pytest.raises(IntegrityError, match=r"codebooks\.bin is missing, 16384 bytes by the manifest"):
        Container.open(path)
    with pytest.raises(EnvironmentError_, match=r"cannot read .*codebooks\.bin"):
        read_codebooks(path, manifest)
