import re
import struct

import pytest
from checkpoint_maker import write_shard

from uringinfer.errors import IntegrityError
from uringinfer.packing.safetensors_header import read_header

TWO = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
}


def changed(name, **values):
    return TWO | {name: TWO[name] | values}


def refusal(path):
    with pytest.raises(IntegrityError) as caught:
        read_header(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_tensors_are_found_with_their_place_in_the_file(tmp_path):
    path = write_shard(tmp_path / "m.safetensors", TWO, bytes(32))
    header = read_header(path)
    assert [(n, t.tensor.dtype, t.tensor.shape) for n, t in header.tensors.items()] == [
        ("a", "F32", (2, 3)),
        ("b", "BF16", (4,)),
    ]
    start = path.stat().st_size - 32
    assert [t.offset for t in header.tensors.values()] == [start, start + 24]


def test_a_short_file_is_named_with_what_it_lacks_and_how_to_resume(tmp_path):
    path = write_shard(tmp_path / "m.safetensors", TWO, bytes(25))
    size = path.stat().st_size
    assert f"7 bytes short: it holds {size} of {size + 7}; resume the download" in refusal(path)


@pytest.mark.parametrize("size", [0, 7, 8, 60])
def test_a_file_cut_within_its_header_is_short_too(tmp_path, size):
    path = write_shard(tmp_path / "m.safetensors", TWO, bytes(32))
    path.write_bytes(path.read_bytes()[:size])
    assert re.search(r"\d+ bytes? short", refusal(path))
    assert " 1 bytes" not in refusal(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (changed("b", data_offsets=[20, 28]), "'b' at 20 overlaps 'a', which ends at 24"),
        (
            changed("b", data_offsets=[25, 33]),
            "'b' at 25 leaves a gap of 1 bytes after 'a', which ends at 24",
        ),
        (changed("a", dtype="F3"), "tensor 'a': dtype: unknown dtype 'F3'"),
        (changed("a", dtype=7), "7 is not a string"),
        (changed("a", shape=[2, 2]), "24 bytes where F32 (2, 2) takes 16"),
        (changed("a", shape=[2, -3]), "shape[1]: -3 is not between 0"),
        (changed("a", shape=[2.0, 3]), "2.0 is not an integer"),
        (changed("a", shape="x"), "'x' is not a list"),
        (changed("a", data_offsets=[0]), "1 numbers where 2 belong"),
        (changed("a", data_offsets=[24, 0]), "-24 bytes where"),
        (changed("a", data_offsets=[True, 24]), "True is not an integer"),
        (changed("a", extra=1), "unknown key 'extra'"),
        (TWO | {"c": 5}, "tensor 'c': 5 is not an object"),
        (TWO | {"__metadata__": []}, "__metadata__ is not an object"),
        (b"[]", "holds [], not a JSON object"),
        (b"{", "not valid JSON"),
        (b'{"a": 1, "a": 2}', "key 'a' stands twice"),
        (b"[" * 50_000, "not valid JSON"),
    ],
)
def test_a_faulty_header_is_refused_with_what_is_wrong(tmp_path, header, message):
    assert message in refusal(write_shard(tmp_path / "m.safetensors", header, bytes(32)))


def test_trailing_bytes_are_refused(tmp_path):
    path = write_shard(tmp_path / "m.safetensors", TWO, bytes(39))
    assert "7 bytes after the last tensor belong to none" in refusal(path)


def test_a_header_length_beyond_reason_is_not_read(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 62) + bytes(100))
    assert "says its header has 4611686018427387904 bytes" in refusal(path)


def test_an_empty_tensor_takes_no_bytes(tmp_path):
    header = TWO | {"e": {"dtype": "F32", "shape": [0, 5], "data_offsets": [24, 24]}}
    assert (
        read_header(write_shard(tmp_path / "m.safetensors", header, bytes(32))).tensors["e"].tensor.nbytes
        == 0
    )
