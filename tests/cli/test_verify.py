import json
from dataclasses import replace

import pytest

from tests.engine.tiny_models import pack_moe
from uringinfer.container.container import Container


@pytest.fixture
def container(tmp_path):
    return pack_moe(tmp_path)


@pytest.fixture
def damaged(container):
    bank = Container.open(container).banks[1]
    data = bytearray((container / bank.file).read_bytes())
    data[2 * bank.record_bytes] ^= 1
    (container / bank.file).write_bytes(data)
    return container


def test_an_undamaged_container_exits_with_0(command_line, container):
    result = command_line("verify", container)
    assert result.code == 0
    assert f"{container} is undamaged: 81 checksums" in result.stdout


def test_damage_is_named_and_exits_with_4(command_line, damaged):
    result = command_line("verify", damaged)
    assert result.code == 4
    assert result.stdout.startswith("expert 2 of layer 1: checksum mismatch")
    assert "1 of 81 checked parts are damaged" in result.stderr


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


def test_a_resealed_container_that_does_not_fit_its_config_is_told_by_verify_and_by_generate(
    command_line, container
):
    manifest = Container.open(container).manifest
    config = {**manifest.config, "num_attention_heads": 8}
    (container / "manifest.json").write_text(replace(manifest, config=config).to_json())
    verified = command_line("verify", container, "--json")
    assert verified.code == 4
    assert json.loads(verified.stdout)["unfit"][0] == (
        "tensor layers.0.self_attn.q_proj has the shape [64, 64], [128, 64] by config"
    )
    generated = command_line("generate", container, "--ids", "1")
    assert (generated.code, generated.stderr.count("\n")) == (4, 1)
    assert "is not what its config says: tensor layers.0.self_attn.q_proj" in generated.stderr
