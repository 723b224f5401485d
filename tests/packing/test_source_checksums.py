"""A checkpoint is compared with the digests that its download left behind."""

import hashlib

import pytest

from uringinfer.errors import IntegrityError, UsageError
from uringinfer.packing.source_checksums import check_source, require_source

WEIGHTS, SETTINGS = bytes(range(256)) * 40_000, b'{"a": 1}\n'


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


DIGESTS = {
    "model.safetensors": (WEIGHTS, hashlib.sha256(WEIGHTS).hexdigest()),
    "config.json": (SETTINGS, git_sha1(SETTINGS)),
}


@pytest.fixture(params=["hub cache", "local directory"])
def download(tmp_path, request):
    """A snapshot of two files, and beside them one that nobody published."""
    if request.param == "hub cache":
        snapshot = tmp_path / "models--o--m" / "snapshots" / "0123"
        blobs = tmp_path / "models--o--m" / "blobs"
        snapshot.mkdir(parents=True)
        blobs.mkdir()
        for name, (data, digest) in DIGESTS.items():
            (blobs / digest).write_bytes(data)
            (snapshot / name).symlink_to(f"../../blobs/{digest}")
    else:
        snapshot = tmp_path / "m"
        metadata = snapshot / ".cache" / "huggingface" / "download"
        metadata.mkdir(parents=True)
        for name, (data, digest) in DIGESTS.items():
            (snapshot / name).write_bytes(data)
            (metadata / f"{name}.metadata").write_text(f"0123\n{digest}\n1733000000.0\n")
    (snapshot / "notes.txt").write_text("mine")
    return snapshot


def test_what_is_as_it_was_published_passes(download):
    steps = []
    report = require_source(download, lambda *step: steps.append(step))
    assert (report.checked, report.unknown, report.damaged) == (2, 1, ())
    assert report.nbytes == len(WEIGHTS) + len(SETTINGS)


@pytest.mark.parametrize("name", DIGESTS)
def test_one_flipped_bit_is_named_with_its_file_and_both_digests(download, name):
    data = bytearray(DIGESTS[name][0])
    data[len(data) // 2] ^= 4
    (download / name).write_bytes(data)
    with pytest.raises(IntegrityError, match=rf"{name}: damaged: .* {DIGESTS[name][1]} was published"):
        require_source(download)


def test_a_single_file_is_checked_too(download):
    assert check_source(download / "model.safetensors").checked == 1


def test_a_checkpoint_without_digests_cannot_be_checked_and_that_is_said(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(UsageError, match="no file's digest is known"):
        require_source(tmp_path)
