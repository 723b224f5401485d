import json

import pytest

from tests.packing.checkpoint_maker import make_checkpoint
from uringinfer.container import Container
from uringinfer.packing import pack


@pytest.fixture
def container(tmp_path):
    pack(make_checkpoint(tmp_path / "m"), tmp_path / "m.uring", segment=8192)
    return tmp_path / "m.uring"


def test_sizes_segments_formats_and_bytes_per_token_are_shown(command_line, container):
    result = command_line("info", container)
    assert result.code == 0
    shown = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    # 2 x (64 + 64 + 4 x 64 x 64 - 2 x 32 x 64 + 3 x 160 x 64) + 64 + 2 x 500 x 64 weights
    assert shown["model"] == "llama, 0.2 million parameters"
    assert shown["source"] == "safetensors m"
    assert shown["tables"].startswith("64.00 KiB")
    assert "bf16" in shown["formats"]
    assert shown["formats"].endswith("(100.0%)")
    assert "read when nothing is in memory" in shown["per"]


def test_json_agrees_with_the_container(command_line, container):
    document = json.loads(command_line("info", container, "--json").stdout)
    opened = Container.open(container)
    assert document["segments"] == len(opened.segments)
    assert document["bytes_per_token"] == document["streamed_bytes"] == opened.streamed_bytes
    assert document["parameters"] == 2 * (128 + 12288 + 30720) + 64 + 64000
    assert document["formats"] == {"bf16": 2 * document["parameters"]}
    assert document["nbytes"] == sum(
        path.stat().st_size for path in container.iterdir() if path.name != "manifest.json"
    )


def test_layers_and_tensors_have_a_line_each(command_line, container):
    document = json.loads(command_line("info", container, "--layers", "--tensors", "--json").stdout)
    assert [layer["name"] for layer in document["layers"]] == ["embedding", "layers.0", "layers.1", "head"]
    assert len(document["tensors"]) == 1 + 2 * 9 + 2
    lines = command_line("info", container, "--layers", "--tensors").stdout.splitlines()
    assert any(
        line.startswith("layers.1.mlp.down_proj") and "64x160" in line and "panels" in line for line in lines
    )
    assert sum(line.startswith("layers.1 ") for line in lines) == 1


def test_what_is_no_container_is_one_line(command_line, tmp_path):
    result = command_line("info", tmp_path)
    assert (result.code, result.stderr.count("\n")) == (4, 1)
