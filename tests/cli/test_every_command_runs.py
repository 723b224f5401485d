"""What holds for every command that does its work: JSON, errors, interruption, silence, colours."""

import importlib
import json
import os
import pkgutil
import pty
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from tiny_models import Containers, pack_moe, write_tiny_checkpoint

from tests.text.tokenizer_files import CORPUS
from uringinfer import cli
from uringinfer.cli.main import COMMANDS
from uringinfer.probing import cells

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "cli.md"
TRACE = b'{"tok": 0, "layers": [[0, 1], [2, 3]]}\n{"tok": 1, "layers": [[0, 1], [2, 3]]}\n'
RUNS = {
    "bench": ["{model}", "-p", "4", "-n", "2", "-r", "1"],
    "chat": ["{model}", "-n", "2"],
    "detokenize": ["{model}", "1,2"],
    "doctor": ["{model}", "--deep", "--seconds", "0.01"],
    "generate": ["{model}", "--ids", "1,2", "-n", "2"],
    "info": ["{model}", "--layers", "--tensors"],
    "pack": ["{checkpoint}", "{new}/packed.uring"],
    "perplexity": ["{model}", "{text}", "-c", "16", "--windows", "3"],
    "plan": ["{model}", "--drive", "1GB/s", "--budget", "2G"],
    "probe": ["{new}", "--quick", "--size", "32M"],
    "shard": ["{moe}", "--to", "{new}/a", "--to", "{new}/b"],
    "simulate": ["{trace}", "--slots", "1,8"],
    "tokenize": ["{model}", "-p", "a"],
    "verify": ["{model}"],
}
"""Every command but completion, which prints a script for a shell."""
PRINTING_JSON = {name: run for name, run in RUNS.items() if name != "chat"}
SHOWING_PROGRESS = [name for name in RUNS if name not in ("detokenize", "info", "tokenize")]
OPENING_A_CONTAINER = ["bench", "generate", "info", "perplexity", "plan", "shard", "verify"]
NAMED_BY_OTHERS = ("files", "formats", "job options", "libraries", "percentile")
WITH_A_BUDGET = {
    "bench": ["{model}"],
    "generate": ["{model}", "--ids", "1"],
    "perplexity": ["{model}", "{text}", "-c", "16"],
    "plan": ["{model}"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A checkpoint, containers, a text and a trace, by name."""
    directory = tmp_path_factory.mktemp("every-command")
    checkpoint = write_tiny_checkpoint(directory / "checkpoint", layers=1)
    (directory / "text").write_text("\n".join(CORPUS))
    (directory / "trace").write_bytes(TRACE)
    return {
        "checkpoint": checkpoint,
        "model": Containers(checkpoint, directory)(),
        "moe": pack_moe(directory / "experts"),
        "text": directory / "text",
        "trace": directory / "trace",
    }


@pytest.fixture
def arguments(made, tmp_path, monkeypatch):
    """Fills in the paths of a run; what may be written to is new."""
    monkeypatch.setattr(cells, "_SECONDS", {"quick": 0.0, "normal": 0.0, "full": 0.0})
    for name in ("a", "b"):
        (tmp_path / "new" / name).mkdir(parents=True)
    shutil.copytree(made["moe"], tmp_path / "moe.uring")
    paths = made | {"new": tmp_path / "new", "moe": tmp_path / "moe.uring"}

    def fill(pattern):
        return [argument.format_map(paths) for argument in pattern]

    return fill


def test_every_command_is_run_here():
    assert set(RUNS) == set(COMMANDS) - {"completion"}


def keys(value):
    """The names in a JSON value, at every depth; without those named by models or fio."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield key
            if key not in NAMED_BY_OTHERS:
                yield from keys(below)
    elif isinstance(value, list):
        for each in value:
            yield from keys(each)


def section(name):
    return DOCUMENTATION.read_text(encoding="utf-8").split(f"\n## {name}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("name", "run"), [*PRINTING_JSON.items(), ("generate", ["{moe}", *RUNS["generate"][1:]])]
)
def test_json_parses_and_each_of_its_keys_is_documented(command_line, arguments, name, run):
    result = command_line(name, *arguments(run), "--json")
    assert result.code == 0 or (name == "doctor" and result.code == 1), result.stderr
    report = json.loads(result.stdout)
    text = section(name) + (section("generate") if name == "bench" else "")  # which it refers to for `setup`
    assert [key for key in keys(report) if not re.search(rf"`(?:jobs\[\]\.)?{re.escape(key)}`", text)] == []


def replace_progress(monkeypatch, name, replacement):
    """`replacement` stands for `progress` in the module of the command `name` and in those that are its
    parts."""
    own = COMMANDS[name].rsplit(".", 1)[1]
    for found in pkgutil.iter_modules(cli.__path__):
        if found.name == own or found.name.startswith(f"{own}_"):
            module = importlib.import_module(f"{cli.__name__}.{found.name}")
            if hasattr(module, "progress"):
                monkeypatch.setattr(module, "progress", replacement)


@contextmanager
def interrupting(**options):
    """In place of `progress`: Ctrl-C comes with the first report."""

    def report(*call):
        raise KeyboardInterrupt

    yield report


@pytest.mark.parametrize("name", SHOWING_PROGRESS)
def test_ctrl_c_at_work_exits_with_130_and_leaves_no_files(
    command_line, arguments, monkeypatch, tmp_path, name
):
    replace_progress(monkeypatch, name, interrupting)
    run = arguments(RUNS[name])
    if name == "plan":
        run = [*run[:1], "--measure"]
    if name == "generate":
        new = tmp_path / "new"
        run += ["--report", new / "a.html", "--save-session", new / "s", "--logits-out", new / "l.npy"]
    before = {path: path.stat().st_size for path in tmp_path.rglob("*")}
    result = command_line(name, *run)
    assert result.code == 130, result.stderr
    assert result.stderr.endswith("interrupted\n")
    left = {path: path.stat().st_size for path in tmp_path.rglob("*")}
    if name == "pack":  # what is written of the container is gone on with, and nothing else is there
        written = {path.relative_to(tmp_path).parts[1] for path in set(left) - set(before)}
        assert written == {"packed.uring.partial"}
        monkeypatch.undo()
        assert command_line(name, *run).code == 0
        assert {path.name for path in (tmp_path / "new").iterdir()} == {"a", "b", "packed.uring"}
    else:
        assert left == before


@pytest.mark.parametrize("name", WITH_A_BUDGET)
def test_a_budget_below_the_floor_is_one_line_and_exit_code_5(command_line, arguments, name):
    result = command_line(name, *arguments(WITH_A_BUDGET[name]), "--budget", "1M")
    assert result.code == 5, result.stderr
    assert result.stderr.startswith("uringinfer: ")
    assert "floor" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", OPENING_A_CONTAINER)
def test_a_damaged_container_is_one_line_and_exit_code_4(command_line, arguments, made, tmp_path, name):
    damaged = tmp_path / "damaged.uring"
    shutil.copytree(made["model"], damaged)
    (damaged / "manifest.json").write_text("{")
    result = command_line(name, damaged, *arguments(RUNS[name])[1:])
    assert result.code == 4, result.stderr
    assert result.stderr.startswith("uringinfer: ")
    assert "damaged.uring" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", SHOWING_PROGRESS)
def test_quiet_shows_no_progress(command_line, arguments, monkeypatch, name):
    asked = []

    @contextmanager
    def noting(*, wanted=True, **options):
        asked.append(wanted)
        yield None

    replace_progress(monkeypatch, name, noting)
    run = arguments(RUNS[name])
    if name == "plan":
        run = [*run[:1], "--measure"]
    # doctor's 1 is a finding about the machine, such as kernels that were not built
    assert command_line(name, *run, "--quiet").code in ((0, 1) if name == "doctor" else (0,))
    assert asked and not any(asked)


def on_a_terminal(*command, **environment):
    """What a process shows whose stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "uringinfer", *map(str, command)],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            break
    process.wait()
    os.close(ours)
    return shown.decode()


def colours(text):
    """Sequences that set a colour."""
    return re.findall(r"\x1b\[[\d;]*(?:3|4|9|10)\d[\d;]*m", text)


@pytest.mark.parametrize("name", ["doctor", "verify", "pack"])
def test_no_color_is_obeyed_on_a_terminal(arguments, monkeypatch, name):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colours(on_a_terminal(name, *arguments(RUNS[name])))
    again = [*arguments(RUNS[name]), *(["--force"] if name == "pack" else [])]
    assert colours(on_a_terminal(name, *again, NO_COLOR="1")) == []


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("perplexity", r"perplexity \d+\.\d{3} .* 3/3 +\d+\.\d(/s| s each), 0:00 left"),
        # the last step of a simulation ends together with its bar
        ("simulate", r"simulating .* 7/8 +\d+\.\d(/s| s each), \d:\d\d left"),
        ("verify", r"verifying .* [kM]B +\d+\.\d [kMG]B/s, 0:00 left"),
    ],
)
def test_a_terminal_shows_what_is_done_the_pace_and_the_time_left(arguments, name, frame):
    shown = on_a_terminal(name, *arguments(RUNS[name]), COLUMNS="120", NO_COLOR="1")
    # the last frame is drawn whatever the speed, and then wiped out
    assert re.search(frame, re.sub(r"\x1b\[[\d;?]*\w", "", shown)), shown
