import json
from types import SimpleNamespace

import pytest

from uringinfer.cli import simulate

GIB = 1 << 30
# two tokens through two layers of 4 experts, 2 each: with 8 slots only the first token misses
TRACE = b'{"tok": 0, "layers": [[0, 1], [2, 3]]}\n{"tok": 1, "layers": [[0, 1], [2, 3]]}\n'


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(TRACE)
    return path


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine that grants 10 GiB."""
    monkeypatch.setattr(
        simulate, "Machine", SimpleNamespace(read=lambda: SimpleNamespace(usable_bytes=10 * GIB))
    )


def test_the_table_has_a_line_for_each_size_and_a_column_for_each_policy(command_line, trace):
    result = command_line("simulate", trace, "--slots", "1,8")

    assert result.code == 0
    assert result.stdout.splitlines() == [
        "8 requests of 4 experts, 2 tokens",
        "",
        "slots  lru %  lfu %  lfru %  belady %",
        "    1   0.00   0.00    0.00      0.00",
        "    8  50.00  50.00   50.00     50.00",
    ]


def test_with_sizes_and_a_drive_the_default_policy_is_costed(command_line, trace):
    result = command_line(
        "simulate",
        trace,
        "--capacity",
        "8G,16G",
        "--record-bytes",
        "2G",
        "--drive",
        "4GiB/s",
        "--policy=lru,lfru",
    )

    assert result.stdout.splitlines()[2:] == [
        "slots   capacity  lru %  lfru %  read/token (lfru)  s/token",
        "    4   8.00 GiB  50.00   50.00           4.00 GiB    1.000",
        "    8  16.00 GiB  50.00   50.00           4.00 GiB    1.000  beyond this machine's memory",
    ]


def test_the_json_has_one_result_for_each_size_and_policy(command_line, trace):
    result = command_line(
        "simulate", trace, "--slots", "2,4", "--record-bytes", "4096", "--policy", "lru,belady", "--json"
    )

    report = json.loads(result.stdout)
    assert [(entry["policy"], entry["slots"]) for entry in report["results"]] == [
        ("lru", 2),
        ("belady", 2),
        ("lru", 4),
        ("belady", 4),
    ]
    assert report["results"][3] == {
        "policy": "belady",
        "slots": 4,
        "requests": 8,
        "hits": 4,
        "hit_rate": 0.5,
        "bytes_per_token": 8192.0,
        "capacity_bytes": 16384,
        "read_seconds_per_token": None,
        "exceeds_memory": False,
    }


def test_without_a_record_size_nothing_is_said_in_bytes(command_line, trace):
    report = json.loads(command_line("simulate", trace, "--slots", "2", "--policy=lru", "--json").stdout)

    assert report["results"][0]["bytes_per_token"] is None
    assert report["results"][0]["capacity_bytes"] is None


def test_a_plot_is_a_picture(command_line, trace, tmp_path):
    pytest.importorskip("matplotlib", reason="--plot needs matplotlib")
    path = tmp_path / "hits.png"

    result = command_line(
        "simulate", trace, "--capacity", "8G,16G", "--record-bytes", "2G", "--policy=lru", "--plot", path
    )

    assert result.code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_plot_that_cannot_be_written_is_an_error_of_one_line(command_line, trace, tmp_path):
    pytest.importorskip("matplotlib", reason="--plot needs matplotlib")

    result = command_line(
        "simulate", trace, "--slots=2", "--policy=lru", "--plot", tmp_path / "no" / "hits.png"
    )

    assert result.code == 3
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no cache size was given"),
        (["--slots", "2", "--capacity", "8G", "--record-bytes", "1G"], "exclude each other"),
        (["--capacity", "8G"], "--capacity needs --record-bytes"),
        (["--capacity", "1G", "--record-bytes", "2G"], "holds no record"),
        (["--slots", "2", "--record-bytes", "0"], "a record of 0 bytes"),
        (["--slots", "0"], "0 slots"),
        (["--slots", "2,x"], "not a list of whole numbers"),
        (["--slots", "2", "--policy", "lru,best"], "'best'"),
        (["--slots", "2", "--drive", "fast"], "not a rate"),
    ],
)
def test_wrong_requests_exit_2_with_one_line(command_line, trace, options, message):
    result = command_line("simulate", trace, *options)

    assert result.code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_device_is_no_trace(command_line):
    result = command_line("simulate", "/dev/zero", "--slots", "2")
    assert (result.code, result.stdout) == (4, "")
    assert result.stderr == "uringinfer: /dev/zero: is no regular file; put a file in its place\n"


def test_a_damaged_trace_exits_4_and_names_the_line(command_line, trace):
    trace.write_bytes(TRACE[:-20])

    result = command_line("simulate", trace, "--slots", "2")

    assert result.code == 4
    assert "line 2" in result.stderr
