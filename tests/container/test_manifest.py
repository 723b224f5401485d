import copy
import json
import os
import re
from dataclasses import replace

import pytest
from container_maker import make_container, signed
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.container import Bank, Container, Manifest
from uringinfer.container.manifest_reader import load_manifest, read_manifest
from uringinfer.errors import IntegrityError, UsageError


@pytest.fixture
def directory(tmp_path):
    make_container(tmp_path / "m.uring")
    return tmp_path / "m.uring"


@pytest.fixture
def document(directory):
    return json.loads((directory / "manifest.json").read_text())


def reload(directory, document) -> Manifest:
    (directory / "manifest.json").write_text(signed(document))
    return load_manifest(directory)


def refusal(directory, document) -> str:
    with pytest.raises(IntegrityError) as caught:
        reload(directory, document)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_manifest_reads_back_as_it_was_written(directory):
    written = make_container(directory)
    assert load_manifest(directory) == written


def test_a_manifest_signed_by_other_software_is_read(directory, document):
    assert reload(directory, document).config["name"] == "ä"


# path of keys -> hostile value -> what the message says
HOSTILE = [
    (("format_version",), 1, "format version 1"),
    (("format_version",), True, "True is not an integer"),
    (("family",), None, "None is not a name"),
    (("config",), [], "[] is not an object"),
    (("trunk_file",), "../trunk.bin", "'../trunk.bin' is not a plain file name"),
    (("trunk_file",), "/etc/passwd", "'/etc/passwd' is not a plain file name"),
    (("trunk_file",), "sub/trunk.bin", "not a plain file name"),
    (("trunk_file",), "..", "not a plain file name"),
    (("trunk_file",), "tokenizer.json", "file tokenizer.json stands twice"),
    (("segments",), {}, "{} is not a list"),
    (("segments", 0), 5, "segments[0]: 5 is not an object"),
    (("segments", 0, "offset"), -4096, "-4096 is not between 0"),
    (("segments", 0, "offset"), 4096.0, "4096.0 is not an integer"),
    (("segments", 0, "offset"), False, "False is not an integer"),
    (("segments", 0, "offset"), 10**400, "a huge number is not between 0"),
    (("segments", 0, "nbytes"), 2**62, "not 8000 rounded up"),
    (("segments", 0, "nbytes"), 12288, "12288 bytes are not 8000 rounded up"),
    (("segments", 0, "crc32"), 2**32, "crc32: 4294967296 is not between"),
    (("segments", 0, "streamed"), 1, "1 is neither true nor false"),
    (("segments", 0, "name"), "layers.0/0", "segment layers.0/0 stands twice"),
    (("segments", 0, "name"), "a\nb", "is not a name"),
    (("segments", 1, "offset"), 4096, "overlaps the one before: it starts at 4096, not at 8192"),
    (("segments", 2, "offset"), 16384, "leaves a gap: it starts at 16384, not at 12288"),
    (("segments", 0, "parts"), [], "holds no tensor"),
    (("segments", 0, "parts", 0, "format"), "q99", "unknown format 'q99'"),
    (("segments", 0, "parts", 0, "shape"), [100, 41], "8000 bytes, 8200 by its shape and format bf16"),
    (("segments", 0, "parts", 0, "shape"), [100, 0], "shape[1]: 0 is not between 1"),
    (("segments", 0, "parts", 0, "shape"), [2**40, 2**40], "larger than any file"),
    (("segments", 0, "parts", 0, "shape"), [1] * 9, "more than 8"),
    (("segments", 0, "parts", 0, "row_stop"), 101, "rows 0 to 101 of 100"),
    (("segments", 0, "parts", 0, "row_stop"), 99, "8000 bytes, 7920 by its shape"),
    (("segments", 0, "parts", 0, "offset"), 32, "no multiple of 64"),
    (("segments", 0, "parts", 0, "offset"), 256, "ends at 8256, beyond the 8192 bytes there"),
    (("segments", 1, "parts", 1, "offset"), 128, "at 128 overlaps what ends at 160"),
    (("segments", 3, "parts", 0, "name"), "other", "other starts at row 81, not 0"),
    (("segments", 3, "parts", 0, "shape"), [162, 40], "not of the shape, format and kind of its first panel"),
    (("segments", 3, "streamed"), False, "not of the shape, format and kind of its first panel"),
    (("segments", 0, "extra"), 1, "unknown key 'extra'"),
    (("banks", 0, "file"), "trunk.bin", "file trunk.bin stands twice"),
    (("banks", 0, "num_experts"), 5, "6 numbers where 5 belong"),
    (("banks", 0, "num_experts"), 2**60, "6 numbers where 1152921504606846976 belong"),
    (("banks", 0, "record_bytes"), 4096, "down ends at 4800, beyond the 4096 bytes there"),
    (("banks", 0, "crc32", 3), "x", "crc32[3]: 'x' is not an integer"),
    (("banks", 0, "crc32", 3), True, "crc32[3]: True is not an integer"),
    (("banks", 0, "parts", 1, "name"), "gate", "stands twice"),
    (("banks", 0, "parts", 1, "row_start"), 1, "1600 bytes, 1520 by its shape"),
    (("files", 0, "name"), "manifest.json", "file manifest.json stands twice"),
    (("files", 0, "name"), ".hidden", "not a plain file name"),
    (("files", 0, "nbytes"), -1, "-1 is not between 0"),
    (("unknown",), 1, "unknown key 'unknown'"),
]


@pytest.mark.parametrize(("keys", "value", "message"), HOSTILE)
def test_a_hostile_value_is_refused_by_name(directory, document, keys, value, message):
    *path, last = keys
    target = document
    for key in path:
        target = target[key]
    target[last] = value
    assert message in refusal(directory, document)


def test_a_missing_row_range_is_named(directory, document):
    trunk = directory / "trunk.bin"
    del document["segments"][3:]
    trunk.write_bytes(trunk.read_bytes()[: 8192 + 4096 + 8192])
    assert "tensor layers.0.up: rows 81 to 161 are missing" in refusal(directory, document)


def test_panels_that_overlap_are_refused(directory, document):
    document["segments"][3]["parts"][0] |= {"row_start": 80, "row_stop": 160}
    assert "layers.0.up starts at row 80, not 81" in refusal(directory, document)


def test_a_missing_key_is_named(directory, document):
    del document["segments"][0]["crc32"]
    assert "segments[0]: 'crc32' is missing" in refusal(directory, document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "holds [], not a JSON object"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"a": 1, "a": 2}', "key 'a' stands twice"),
        (b'{"a": 1', "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b'{"format_version": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_what_is_no_json_object_is_refused_in_one_line(directory, text, message):
    (directory / "manifest.json").write_bytes(text)
    with pytest.raises(IntegrityError, match=re.escape(message)) as caught:
        load_manifest(directory)
    assert "\n" not in str(caught.value)


def test_an_edited_manifest_without_its_checksum_renewed_is_refused(directory):
    path = directory / "manifest.json"
    path.write_text(path.read_text().replace('"rope_theta": 10000.0', '"rope_theta": 20000.0'))
    with pytest.raises(IntegrityError, match="checksum mismatch"):
        load_manifest(directory)


def test_any_flipped_bit_of_the_manifest_is_found(directory):
    good = (directory / "manifest.json").read_bytes()
    for bit in range(0, 8 * len(good), 37):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(IntegrityError):
            read_manifest(bytes(bad))


@pytest.mark.parametrize(("change", "message"), [(-1, "1 byte short"), (512, "512 bytes too long")])
@pytest.mark.parametrize("name", ["trunk.bin", "experts-L1.bin", "tokenizer.json"])
def test_a_file_of_the_wrong_size_is_named_with_the_difference(directory, name, change, message):
    data = (directory / name).read_bytes()
    (directory / name).write_bytes(data[:change] if change < 0 else data + bytes(change))
    with pytest.raises(IntegrityError, match=f"{name}: {message}"):
        load_manifest(directory)


def test_a_missing_file_is_named(directory):
    (directory / "experts-L1.bin").unlink()
    with pytest.raises(IntegrityError, match=r"experts-L1\.bin is missing, 49152 bytes"):
        load_manifest(directory)


def test_a_link_out_of_the_directory_is_refused_and_one_inside_is_followed(directory, tmp_path):
    trunk = directory / "trunk.bin"
    trunk.rename(directory / "elsewhere.bin")
    trunk.symlink_to("elsewhere.bin")
    load_manifest(directory)
    (directory / "elsewhere.bin").rename(tmp_path / "outside.bin")
    trunk.unlink()
    trunk.symlink_to(tmp_path / "outside.bin")
    with pytest.raises(IntegrityError, match="leaves the container"):
        load_manifest(directory)


def test_a_pipe_in_the_manifests_place_is_refused_without_waiting_for_its_writer(directory):
    (directory / "manifest.json").unlink()
    os.mkfifo(directory / "manifest.json")
    with pytest.raises(IntegrityError, match=r"manifest\.json: is no regular file"):
        load_manifest(directory)


def test_what_is_no_file_is_refused(directory):
    (directory / "tokenizer.json").unlink()
    (directory / "tokenizer.json").mkdir()
    with pytest.raises(IntegrityError, match="not a regular file"):
        load_manifest(directory)


def test_a_directory_that_was_not_packed_to_its_end_is_told_from_none_at_all(tmp_path):
    with pytest.raises(IntegrityError, match="holds no manifest"):
        load_manifest(tmp_path)
    with pytest.raises(UsageError, match="is no directory"):
        load_manifest(tmp_path / "absent")


def test_a_checkpoint_is_told_from_a_container_that_is_not_whole(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(IntegrityError, match="holds no manifest"):
        load_manifest(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(UsageError, match=r"is a checkpoint, not a container; pack it first"):
        load_manifest(tmp_path)


def test_the_manifest_of_92_layers_of_896_experts_reads_back(tmp_path):
    manifest = make_container(tmp_path)
    banks = tuple(
        Bank(layer, f"experts-L{layer}.bin", 896, 8192, manifest.banks[0].parts, tuple(range(896)))
        for layer in range(92)
    )
    large = replace(manifest, banks=banks)
    assert read_manifest(large.to_json().encode()) == large


def mutations(document):
    """Paths of every value in `document`."""
    stack = [((), document)]
    while stack:
        path, value = stack.pop()
        if path:
            yield path
        children = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        stack.extend(((*path, key), child) for key, child in children)


VALUES = (
    st.integers(-(2**70), 2**70)
    | st.sampled_from([0, 1, 63, 64, 4096, 8192, 2**31, 2**63, -1])
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.none()
    | st.text(max_size=8)
    | st.sampled_from(["..", "/", "bf16", "f32", "trunk.bin", "embed"])
    | st.lists(st.integers(-5, 10**12), max_size=3)
    | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
)


@settings(max_examples=200)
@given(data=st.data())
def test_a_mutated_manifest_is_refused_or_read_back_equal(directory, document, data):
    good = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from(sorted(mutations(good), key=repr)))
        target = good
        try:
            for key in path:
                target = target[key]
            if data.draw(st.booleans()):
                del target[last]
            else:
                target[last] = data.draw(VALUES)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier mutation removed this path
    (directory / "manifest.json").write_text(signed(good))
    try:
        container = Container.open(directory)
    except IntegrityError as error:
        assert "\n" not in str(error)
        return
    again = read_manifest(container.manifest.to_json().encode())
    assert again == container.manifest
    assert json.loads(signed(good))["segments"] == json.loads(again.to_json())["segments"]
