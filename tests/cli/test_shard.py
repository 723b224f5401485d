import json

import pytest

from tests.container.container_maker import make_container
from uringinfer.cli import shard as shard_command
from uringinfer.container import Container
from uringinfer.container.verifier import verify


@pytest.fixture
def container(tmp_path):
    make_container(tmp_path / "m.uring")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return tmp_path / "m.uring"


def test_each_drive_has_a_line_with_its_share(command_line, container):
    result = command_line("shard", container, "--to", container.parent / "a", "--to", container.parent / "b")
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{container.parent}/a/m.uring.")
    assert lines[0].endswith(": 3 experts, 24.00 KiB, 50.0%")
    assert lines[-1] == f"6 experts of {container}, 48.00 KiB, lie on 2 drives"
    assert verify(container).ok


def test_weights_and_back_are_followed_and_json_says_so(command_line, container):
    to = ("--to", container.parent / "a", "--to", container.parent / "b")
    document = json.loads(command_line("shard", container, *to, "--weights", "2,1", "--json").stdout)
    assert document["pattern"] == [0, 1, 0]
    assert command_line("shard", container, "--back").stdout.endswith("lie in the container\n")
    assert Container.open(container).manifest.sharding is None


def test_measured_rates_become_weights(command_line, container, monkeypatch):
    monkeypatch.setattr(shard_command, "PROBE_BYTES", 8 << 20)
    monkeypatch.setattr(shard_command, "PROBE_SECONDS", 0.05)
    to = ("--to", container.parent / "a", "--to", container.parent / "b")
    result = command_line("shard", container, *to, "--measure")
    assert result.code == 0
    assert result.stderr.count("GB/s") == 2


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--back", "--to", "."],
        ["--to", ".", "--weights", "1", "--measure"],
        ["--to", ".", "--weights", "x"],
    ],
)
def test_options_that_contradict_are_one_line_and_exit_code_2(command_line, container, options):
    result = command_line("shard", container, *options)
    assert (result.code, result.stdout, result.stderr.count("\n")) == (2, "", 1)


def test_a_missing_drive_is_named_by_every_command(command_line, container):
    command_line("shard", container, "--to", container.parent / "a")
    next((container.parent / "a").iterdir()).rename(container.parent / "gone")
    for name in ("verify", "info"):
        result = command_line(name, container)
        assert result.code == 4
        assert "drive 1 of 1 is missing" in result.stderr
