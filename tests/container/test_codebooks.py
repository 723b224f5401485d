import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "packing"))
from checkpoint_maker import make_checkpoint

from uringinfer.container import Container
from uringinfer.container.binding import bind_codebooks
from uringinfer.container.codebooks import (
    CODEBOOKS_NAME,
    codebook_names,
    pack_codebooks,
)
from uringinfer.container.manifest_reader import read_manifest
from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.packing.packer import pack


@pytest.fixture
def path(tmp_path):
    rules = ((r"layers\.1\.mlp\.up_proj", "vq3"), (r"layers\.0\.self_attn\.k_proj", "vq3"))
    pack(make_checkpoint(tmp_path / "m"), tmp_path / "m.uring", tensors=rules, segment=4096)
    return tmp_path / "m.uring"


def test_codebooks_lie_in_the_order_of_execution_as_float16(path):
    container = Container.open(path)
    names = codebook_names(container.manifest.segments, container.manifest.banks)
    assert names == ["layers.0.self_attn.k_proj", "layers.1.mlp.up_proj"]
    content = np.fromfile(path / CODEBOOKS_NAME, np.float16)
    tensors = bind_codebooks(container).tensors
    codebooks = [tensors[name][0].part.format.codebook for name in names]
    np.testing.assert_array_equal(np.stack(codebooks), content.reshape(2, 3, 256, 8))
    assert pack_codebooks(codebooks) == content.tobytes()


def test_a_container_without_such_formats_has_no_file(tmp_path):
    pack(make_checkpoint(tmp_path / "m"), tmp_path / "m.uring", trunk="q4")
    assert not (tmp_path / "m.uring" / CODEBOOKS_NAME).exists()
    container = Container.open(tmp_path / "m.uring")
    assert bind_codebooks(container) is container


@pytest.mark.parametrize("listed", [None, 6 * 4096 - 1, 7 * 4096])
def test_a_manifest_must_list_the_file_with_the_size_that_the_formats_need(path, listed):
    manifest = Container.open(path).manifest
    files = [
        file if file.name != CODEBOOKS_NAME else replace(file, nbytes=listed)
        for file in manifest.files
        if file.name != CODEBOOKS_NAME or listed is not None
    ]
    text = replace(manifest, files=tuple(files)).to_json().encode()
    with pytest.raises(IntegrityError, match=rf"codebooks\.bin of {listed or 0} bytes, 24576 by the formats"):
        read_manifest(text)


def test_a_file_that_no_format_needs_is_refused(path):
    manifest = replace(Container.open(path).manifest, segments=())
    with pytest.raises(IntegrityError, match=r"codebooks\.bin of 24576 bytes, 0 by the formats"):
        read_manifest(manifest.to_json().encode())


def test_a_missing_file_is_named(path):
    container = Container.open(path)
    (path / CODEBOOKS_NAME).unlink()
    with pytest.raises(IntegrityError, match=r"codebooks\.bin is missing, 24576 bytes by the manifest"):
        Container.open(path)
    with pytest.raises(EnvironmentError_, match=r"cannot read .*codebooks\.bin"):
        bind_codebooks(container)
