import json
import os
import re
from dataclasses import replace

import pytest

from uringinfer.cli import probe_plot
from uringinfer.planning.machine import Bound, Machine
from uringinfer.probing import cells, probe


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "_SECONDS", {"quick": 0.0, "normal": 0.0, "full": 0.0})
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(2 << 20))
    return path


def test_it_prints_conditions_a_table_and_a_verdict(command_line, data):
    result = command_line("probe", "--quick", data)
    assert result.code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"reads        2.00 MiB of {data}"
    assert any(line.startswith("direct       ") for line in lines)
    header = next(line.split() for line in lines if line.startswith("way"))
    assert header[:5] == ["way", "pattern", "block", "QD", "GB/s"]
    assert re.search(r"random +4 KiB +1 ", result.stdout)
    assert lines[-1].startswith(("best: ", "no drive was measured: "))


def test_the_header_shows_everything_that_the_numbers_depend_on(command_line, data, monkeypatch):
    bounds = [Bound("cgroup v2 /jail (memory.max)", 6 << 30, 5 << 30), Bound("memory", 8 << 30, 7 << 30)]
    machine = replace(Machine.read(), bounds=tuple(bounds))
    monkeypatch.setattr(Machine, "read", lambda: machine)
    result = command_line("probe", "--quick", data)
    header = result.stdout.split("\n\n")[0].splitlines()
    assert [line[:12].strip() for line in header] == [
        "reads", "file system", "device", "direct", "DIOALIGN", "kernel", "ring", "huge pages", "memlock",
        "memory", "cgroup",
    ]  # fmt: skip
    assert header[-1] == "cgroup       cgroup v2 /jail (memory.max) = 6.00 GiB"
    report = json.loads(command_line("probe", "--quick", "--json", data).stdout)
    assert report["conditions"]["cgroup_limits"] == [["cgroup v2 /jail (memory.max)", 6 << 30]]


def test_json_parses_and_holds_every_row(command_line, data):
    report = json.loads(command_line("probe", "--quick", "--json", data).stdout)
    assert report["schema_version"] == 1
    assert report["conditions"]["nbytes"] == 2 << 20
    assert report["jobs"]
    assert all(job["read"]["io_bytes"] > 0 for job in report["jobs"])


def test_the_size_bounds_what_is_read(command_line, data):
    report = json.loads(command_line("probe", "--quick", "--json", "--size", "1M", data).stdout)
    assert report["conditions"]["nbytes"] == 1 << 20


def test_two_modes_at_once_are_refused(command_line, data):
    result = command_line("probe", "--quick", "--full", data)
    assert (result.code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "--quick, --normal and --full exclude each other" in result.stderr


def test_a_picture_is_drawn(command_line, data, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    assert command_line("probe", "--quick", data, "--plot", tmp_path / "probe.png").code == 0
    assert (tmp_path / "probe.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("mode", ["quick", "normal", "full"])
def test_no_panel_of_a_picture_has_more_lines_than_its_legend_holds(
    data, tmp_path, recwarn, monkeypatch, mode
):
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    monkeypatch.setattr(cells, "BLOCKS", (4096, 65536))
    monkeypatch.setattr("uringinfer.probing.judge_row", lambda *about: None)
    found = probe(data, mode=mode)
    panels = probe_plot.panels_of(found)
    assert max(len(lines) for lines in panels.values()) <= 12
    points = [point for lines in panels.values() for line in lines.values() for point in line]
    assert len(points) == len(found.rows)
    probe_plot.draw(found, tmp_path / "probe.png")
    assert [str(warning.message) for warning in recwarn] == []  # matplotlib warns where a layout fails


def test_an_unknown_ending_of_a_picture_is_one_line(command_line, data, tmp_path):
    result = command_line("probe", "--quick", data, "--plot", tmp_path / "probe.nonsense")
    assert (result.code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "probe.nonsense" in result.stderr


def test_a_saved_rate_lies_in_the_cache(command_line, data, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = command_line("probe", "--quick", "--save", data)
    if "no drive was measured" in result.stdout:
        assert result.code == 3
    else:
        assert f"saved in {tmp_path / 'cache/uringinfer/drives.json'}" in result.stderr
        assert (tmp_path / "cache/uringinfer/drives.json").exists()


def test_a_missing_path_exits_with_2(command_line, tmp_path):
    result = command_line("probe", tmp_path / "nowhere")
    assert result.code == 2
    assert "nowhere: no such file" in result.stderr
