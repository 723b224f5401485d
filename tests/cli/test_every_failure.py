"""Every command under every condition that has broken one: one line, the right exit code, no traceback."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from tests.cli.test_every_command_runs import OPENING_A_CONTAINER, RUNS, WITH_A_BUDGET
from tests.cli.test_every_command_runs import arguments as arguments
from tests.cli.test_every_command_runs import made as made
from uringinfer.cli.main import COMMANDS

ENDLESS = "9" * 400
READING_STDIN = {
    "chat": ["{model}", "--quiet"],
    "generate": ["{model}", "-"],
    "perplexity": ["{model}", "-"],
    "tokenize": ["{model}", "-"],
}


def told_once(result, code):
    """Asserts one line on stderr, nothing on stdout, and the exit code."""
    assert result.code == code, result.stderr
    assert result.stderr.startswith("uringinfer: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def run_process(*command, **options):
    return subprocess.run(
        [sys.executable, "-m", "uringinfer", *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **options,
    )


@pytest.mark.parametrize("name", RUNS)
def test_a_loop_of_links_in_the_place_of_any_path_is_one_line(command_line, arguments, tmp_path, name):
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    run = arguments(RUNS[name])
    places = [place for place, argument in enumerate(run) if argument.startswith("/")]
    for place in places:
        result = command_line(name, *run[:place], loop, *run[place + 1 :])
        assert result.code in (2, 3, 4), result.stderr
        assert result.stderr.startswith("uringinfer: ") and "loop" in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", OPENING_A_CONTAINER)
def test_a_loop_of_links_inside_a_container_is_one_line_and_exit_code_4(
    command_line, arguments, made, tmp_path, name
):
    damaged = tmp_path / "damaged.uring"
    shutil.copytree(made["moe"] if name == "shard" else made["model"], damaged)
    (damaged / "trunk.bin").unlink()
    (damaged / "trunk.bin").symlink_to("trunk.bin")
    told_once(command_line(name, damaged, *arguments(RUNS[name])[1:]), 4)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MemoryError(), 3, "memory ran out; give a smaller --budget"),
        (MemoryError("Unable to allocate 4.00 GiB"), 3, "memory ran out (Unable to allocate 4.00 GiB)"),
        (RecursionError(), 4, "nested too deeply"),
        (OverflowError("int too big to convert"), 2, "a number is too large"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), 4, "not valid Unicode"),
        (OSError(40, "Too many levels of symbolic links", "a\nb"), 3, "cannot use a b: Too many levels"),
        (TypeError("no\nsuch thing"), 1, "a mistake in this program (TypeError: no such thing)"),
        (type("PanicException", (BaseException,), {})("retry-limit"), 4, "a library gave up over its input"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_nobody_caught_is_one_line_with_its_own_exit_code(command_line, monkeypatch, error, code, words):
    def fail(*args, **kwargs):
        raise error

    for name in COMMANDS:
        monkeypatch.setattr(importlib.import_module(COMMANDS[name]).command, "invoke", fail)
        run = [{"completion": "bash"}.get(name, "a")] * 3
        wanted = [p for p in click_arguments(name) if p.required]
        result = command_line(name, *run[: len(wanted)])
        told_once(result, code)
        assert words in result.stderr


def click_arguments(name):
    command = importlib.import_module(COMMANDS[name]).command
    return [param for param in command.params if isinstance(param, click.Argument)]


def test_debug_shows_where_a_mistake_was_made(command_line, monkeypatch):
    def fail(*args, **kwargs):
        raise TypeError("no such thing")

    monkeypatch.setattr(importlib.import_module(COMMANDS["info"]).command, "invoke", fail)
    with pytest.raises(TypeError, match="no such thing"):
        command_line("--debug", "info", "a")


@pytest.mark.parametrize("name", WITH_A_BUDGET)
@pytest.mark.parametrize("size", [ENDLESS, f"{ENDLESS}.5G", "1" * 5000, "9999999P"])
def test_a_budget_without_end_is_one_line_and_exit_code_2(command_line, arguments, name, size):
    result = command_line(name, *arguments(WITH_A_BUDGET[name]), "--budget", size)
    told_once(result, 2)
    assert len(result.stderr) < 200


def numbers():
    found = []
    for name in RUNS:
        for param in importlib.import_module(COMMANDS[name]).command.params:
            if isinstance(param, click.Option) and isinstance(
                param.type, click.IntRange | click.FloatRange | type(click.INT) | type(click.FLOAT)
            ):
                found.append((name, param.opts[0]))
    return [each for each in found if each != ("bench", "-r")]  # as often as one likes


@pytest.mark.parametrize(("name", "option"), numbers())
def test_a_number_of_400_digits_is_taken_or_one_line(command_line, arguments, name, option):
    result = command_line(name, *arguments(RUNS[name]), option, ENDLESS)
    if result.code not in (0, 1):
        told_once(result, result.code)
    assert ("mistake" not in result.stderr and result.code != 1) or name == "doctor"


def spoiled(made, directory, file, text):
    """A container with this text in one of its small files, whose checksum agrees."""
    from zlib import crc32

    shutil.copytree(made["model"], directory)
    (directory / file).write_text(text)
    manifest = json.loads((directory / "manifest.json").read_text())
    data = (directory / file).read_bytes()
    others = [entry for entry in manifest["files"] if entry["name"] != file]
    manifest["files"] = [*others, {"name": file, "nbytes": len(data), "crc32": crc32(data)}]
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def with_tokenizer(made, change):
    document = json.loads((made["model"] / "tokenizer.json").read_text())
    change(document)
    return json.dumps(document)


def surrogate(document):
    document["added_tokens"] = [{"id": 3, "content": "\ud800", "special": True}]


def exploding(document):
    document["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$|(a|aa)+\\1x"},
        "behavior": "Isolated",
        "invert": False,
    }


@pytest.mark.parametrize("kind", ["surrogate", "exploding", "brackets"])
@pytest.mark.parametrize(
    ("name", "run"), [("tokenize", ["-p", "a" * 60 + "b"]), ("generate", ["-p", "a" * 60 + "b", "-n", "1"])]
)
def test_a_hostile_tokenizer_is_one_line_and_exit_code_4(made, tmp_path, kind, name, run):
    text = {
        "surrogate": lambda: with_tokenizer(made, surrogate),
        "exploding": lambda: with_tokenizer(made, exploding),
        "brackets": lambda: "[" * 10**6,
    }[kind]()
    file = "tokenizer_config.json" if kind == "brackets" else "tokenizer.json"
    model = spoiled(made, tmp_path / "spoiled.uring", file, text)
    # in a process: what a library panics over it writes to the descriptor
    result = run_process(name, model, *run, "--quiet" if name == "generate" else "--json")
    assert result.returncode == 4, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr


@pytest.mark.parametrize("name", READING_STDIN)
def test_a_closed_stdin_is_one_line_and_exit_code_2(arguments, name):
    run = arguments(READING_STDIN[name])
    result = run_process(name, *run, preexec_fn=lambda: os.close(0))
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert "cannot read stdin: Bad file descriptor" in result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_closed_stdout_is_one_line_and_exit_code_3_and_no_file_takes_its_place(arguments, name):
    run = ["bash"] if name == "completion" else arguments(RUNS[name])
    result = run_process(
        name, *run, "--json"[: 6 * (name == "doctor")] or "-h", preexec_fn=lambda: os.close(1)
    )
    assert result.returncode == 3, result.stderr
    assert result.stderr == "uringinfer: cannot write to stdout: Bad file descriptor\n"


def test_a_run_whose_streams_are_all_closed_does_its_work(arguments, tmp_path):
    def close_all():
        for number in range(3):
            os.close(number)

    result = subprocess.run(
        [sys.executable, "-m", "uringinfer", "pack", *arguments(RUNS["pack"])],
        preexec_fn=close_all,
        check=False,
        timeout=60,
    )
    assert result.returncode in (0, 3)  # 3: what it has to say on stdout cannot be said
    assert (tmp_path / "new" / "packed.uring" / "manifest.json").exists()


@pytest.mark.parametrize("name", ["info", "generate", "pack"])
def test_a_full_drive_behind_stderr_changes_nothing(arguments, name):
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "uringinfer", name, *arguments(RUNS[name])],
            stdout=subprocess.DEVNULL,
            stderr=full,
            check=False,
            timeout=60,
        )
    assert result.returncode == 0


INTERRUPTED_AT = """
import os, signal, sys

class Interrupter:
    def __init__(self, module):
        self.module = module

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter(sys.argv.pop(1)))
from uringinfer.__main__ import run
run()
"""
"""Runs a command that is interrupted when it imports the module that is named first."""


@pytest.mark.parametrize(
    "module",
    ["uringinfer.cli.main", "click", "uringinfer.cli.info", "numpy", "uringinfer.container.container"],
)
def test_ctrl_c_during_start_up_is_one_line_and_exit_code_130(made, module):
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, module, "info", str(made["model"])],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "uringinfer: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_bench_that_is_ended_leaves_no_process(arguments, number):
    command = [sys.executable, "-m", "uringinfer", "bench", *arguments(["{model}"]), "-r", "1000"]
    bench = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        measuring = wait_for(lambda: [pid for pid in children(bench.pid) if is_measuring(pid)])
        bench.send_signal(number)
        bench.wait(10)
        wait_for(lambda: not any(is_measuring(pid) for pid in measuring))
    finally:
        bench.kill()
        bench.wait()


def children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_measuring(pid):
    """Whether a process is there, has begun its own work, and is no zombie."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text() and "State:\tZ" not in status
    except OSError:
        return False


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
