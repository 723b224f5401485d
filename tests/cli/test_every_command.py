"""What holds for every command: help, errors, interruption, documentation."""

import errno
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from uringinfer.cli.main import COMMANDS
from uringinfer.cli.shared import OutputFile

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "cli.md"


def commands():
    return {name: importlib.import_module(module).command for name, module in COMMANDS.items()}


@pytest.mark.parametrize(("columns", "width"), [(80, 80), (200, 100)])
@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_fits_the_screen_and_shows_examples(command_line, monkeypatch, name, columns, width):
    monkeypatch.setenv("COLUMNS", str(columns))
    result = command_line(*filter(None, [name]), "-h")
    assert result.code == 0
    assert max(map(len, result.stdout.splitlines())) <= width
    assert "Examples:\n" in result.stdout
    assert f"uringinfer {name or 'pack'} " in result.stdout.split("Examples:")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name):
    for option in commands()[name].params:
        if isinstance(option, click.Option):
            assert option.help, option.name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_documentation_has_a_section_with_every_flag(name):
    text = DOCUMENTATION.read_text(encoding="utf-8")
    assert f"\n## {name}\n" in text
    section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
    for option in commands()[name].params:
        if isinstance(option, click.Option):
            for flag in (*option.opts, *option.secondary_opts):
                assert re.search(rf"(?<![\w-]){flag}(?![\w-])", section), f"{flag} is not documented"


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_one_line_and_exit_code_2(command_line, name):
    result = command_line(name, "--no-such-option")
    assert result.code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("uringinfer: No such option")
    assert "--no-such-option" in result.stderr
    assert result.stderr.endswith(f"see 'uringinfer {name} -h'\n")
    assert result.stderr.count("\n") == 1


def test_what_the_machine_refuses_is_one_line_and_exit_code_3(command_line, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", "locked/model.uring")

    monkeypatch.setattr(commands()["info"], "invoke", refuse)
    result = command_line("info", "locked/model.uring")
    assert (result.code, result.stdout) == (3, "")
    assert result.stderr == "uringinfer: cannot use locked/model.uring: Permission denied\n"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_a_model_that_is_not_there_is_one_line_and_exit_code_2(command_line, name, tmp_path):
    wanted = {
        "detokenize": ["1"],
        "generate": ["--ids", "1"],
        "pack": [tmp_path / "out.uring"],
        "perplexity": [tmp_path / "text"],
        "shard": ["--back"],
        "simulate": ["--slots", "1"],
        "tokenize": ["-p", "a"],
    }
    (tmp_path / "text").write_text("a")
    result = command_line(name, tmp_path / "nothing", *wanted.get(name, []))
    assert result.code == 2, result.stderr
    assert result.stderr.startswith("uringinfer: ")
    assert "nothing" in result.stderr
    assert result.stderr.count("\n") == 1


def options_that_write():
    found = [(name, param) for name, command in commands().items() for param in command.params]
    return sorted((name, param.opts[0]) for name, param in found if isinstance(param.type, OutputFile))


def test_every_option_that_writes_a_file_is_known_as_one():
    drawn = [(name, "--plot") for name in ("bench", "plan", "probe", "simulate")]
    written = [("generate", name) for name in ("--logits-out", "--report", "--save-session", "--trace")]
    written += [("bench", "--report"), ("chat", "--session")]
    assert options_that_write() == sorted([*drawn, *written])


@pytest.mark.parametrize(("name", "option"), options_that_write())
def test_a_file_that_cannot_be_written_is_told_before_the_work_starts(command_line, tmp_path, name, option):
    path = tmp_path / "missing/file.png"
    # no model is there either, which is what the work would say first
    result = command_line(name, tmp_path / "nothing", option, path)
    assert (result.code, result.stdout) == (3, "")
    assert result.stderr == (
        f"uringinfer: cannot write {path}: No such file or directory; choose another file\n"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_is_exit_code_130(command_line, monkeypatch, name):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    command = commands()[name]
    monkeypatch.setattr(command, "callback", interrupted)
    arguments = (
        ["bash"]
        if name == "completion"
        else ["a" for p in command.params if isinstance(p, click.Argument) and p.required]
    )
    result = command_line(name, *arguments)
    assert result.code == 130
    assert result.stderr.endswith("uringinfer: interrupted\n")


@pytest.mark.parametrize("arguments", [["-h"], ["--version"], ["info", "-h"], ["completion", "bash"]])
def test_a_reader_that_went_away_is_exit_code_141_and_silence(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "uringinfer", *arguments]
        result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["-h"], ["--version"], ["completion", "bash"]])
def test_a_full_drive_behind_stdout_is_named_and_exit_code_3(arguments, unbuffered):
    command = [sys.executable, "-m", "uringinfer", *arguments]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert result.stderr == "uringinfer: cannot write to stdout: No space left on device\n"
    assert result.returncode == 3


def test_the_program_lists_every_command_in_a_line_of_its_own(command_line, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    listed = command_line("-h").stdout.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed] == sorted(COMMANDS)
    for line in listed:
        assert len(line.split()) > 3
        assert line.endswith("."), line


def test_listing_the_commands_imports_none_of_them():
    code = (
        "import sys; from uringinfer.cli.main import cli\n"
        "cli(['-h'], standalone_mode=False); print('numpy' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("name", ["completion", "info", "pack", "shard", "simulate", "verify"])
def test_a_command_that_runs_no_model_imports_no_engine(name):
    code = f"import sys, {COMMANDS[name]}; print('uringinfer.engine.engine' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_version_tells_what_the_build_and_the_machine_have(command_line):
    lines = command_line("--version").stdout.splitlines()
    assert lines[0].startswith("uringinfer ")
    assert [line.split(":")[0] for line in lines[1:]] == [
        "system",
        "io_uring",
        "liburing",
        "kernels",
        "packages",
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_the_program(command_line, monkeypatch, shell):
    monkeypatch.setattr(
        "click.shell_completion.BashComplete._check_version", lambda self: None, raising=False
    )
    script = command_line("completion", shell).stdout
    assert f"_URINGINFER_COMPLETE={shell}_complete" in script
    assert "uringinfer" in script


def test_completion_knows_commands_and_their_options(command_line, monkeypatch):
    monkeypatch.setenv("_URINGINFER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "uringinfer tok")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert command_line().stdout.split() == ["plain,tokenize"]
    monkeypatch.setenv("COMP_WORDS", "uringinfer tokenize --cha")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert command_line().stdout.split() == ["plain,--chat", "plain,--chat-template"]
