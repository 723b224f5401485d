import json

import pytest

from tests.container.container_maker import make_container


@pytest.fixture
def container(tmp_path):
    make_container(tmp_path / "m.uring")
    return tmp_path / "m.uring"


@pytest.fixture
def damaged(container):
    data = bytearray((container / "experts-L1.bin").read_bytes())
    data[2 * 8192] ^= 1
    (container / "experts-L1.bin").write_bytes(data)
    return container


def test_an_undamaged_container_exits_with_0(command_line, container):
    result = command_line("verify", container)
    assert result.code == 0
    assert f"{container} is undamaged: 13 checksums" in result.stdout


def test_damage_is_named_and_exits_with_4(command_line, damaged):
    result = command_line("verify", damaged)
    assert result.code == 4
    assert result.stdout.startswith("expert 2 of layer 1: checksum mismatch")
    assert "1 of 13 checked parts are damaged" in result.stderr


def test_json_names_damage_too(command_line, damaged):
    result = command_line("verify", damaged, "--json", "--io", "preadv")
    document = json.loads(result.stdout)
    assert (result.code, document["ok"], document["reader"]) == (4, False, "preadv")
    assert len(document["damaged"]) == 1


def test_a_structural_fault_is_one_line_and_exit_code_4(command_line, container):
    (container / "trunk.bin").unlink()
    result = command_line("verify", container)
    assert (result.code, result.stdout, result.stderr.count("\n")) == (4, "", 1)
    assert "trunk.bin is missing" in result.stderr
