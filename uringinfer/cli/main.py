"""The command `uringinfer`: finds the subcommand, turns errors into one line and an exit code."""

from __future__ import annotations

import ast
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import resources
from typing import Any, TextIO

import click

from uringinfer.api import EnvironmentError_, UringinferError

PROGRAM = "uringinfer"
_HELP_WIDTH = 100

# name -> module; a command's module is imported only when it is called, so that `-h` is instant
COMMANDS = {
    "bench": "uringinfer.cli.bench",
    "completion": "uringinfer.cli.completion",
    "detokenize": "uringinfer.cli.detokenize",
    "doctor": "uringinfer.cli.doctor",
    "generate": "uringinfer.cli.generate",
    "info": "uringinfer.cli.info",
    "pack": "uringinfer.cli.pack",
    "perplexity": "uringinfer.cli.perplexity",
    "plan": "uringinfer.cli.plan",
    "shard": "uringinfer.cli.shard",
    "probe": "uringinfer.cli.probe",
    "simulate": "uringinfer.cli.simulate",
    "tokenize": "uringinfer.cli.tokenize",
    "verify": "uringinfer.cli.verify",
}


class _ReaderGone(Exception):
    """A closed pipe, under a name that click does not know: click exits with 1 at a BrokenPipeError."""


class _StdoutRefused(EnvironmentError_):
    """stdout did not take what was written to it: a file on a full drive, say."""


class _Stdout:
    """stdout, where a refusal says that it was stdout: the machine's error names no file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with _told_of_stdout():
            return self._stream.write(text)

    def flush(self) -> None:
        with _told_of_stdout():
            self._stream.flush()


@contextmanager
def _told_of_stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # no refusal: the reader had enough
    except OSError as error:
        raise _StdoutRefused(f"cannot write to stdout: {error.strerror}") from error


class LazyGroup(click.Group):
    """A group whose commands live in modules that are imported on demand; each has a `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: Any = importlib.import_module(COMMANDS[cmd_name]).command
        return command  # type: ignore[no-any-return]

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)  # prints the help and the version
        except BrokenPipeError as error:
            raise _ReaderGone from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # None where the shell closed it
                sys.stdout.flush()  # else the buffer would meet the closed pipe in an exit handler
        except BrokenPipeError as error:
            raise _ReaderGone from error
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands by what their modules' docstrings say, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(name)) for name in self.list_commands(ctx)])


def _summary(name: str) -> str:
    """What stands behind "`uringinfer NAME`:" in the docstring of the command's module."""
    source = resources.files(__package__).joinpath(f"{COMMANDS[name].rpartition('.')[2]}.py")
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    summary = text.split("\n\n")[0].partition(": ")[2].replace("\n", " ")
    return summary[:1].upper() + summary[1:]


def _print_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from uringinfer.api import read_build_facts  # late: it loads the native modules

    click.echo(read_build_facts().to_text())
    ctx.exit()


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _HELP_WIDTH}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and what this build and machine have: io_uring, liburing, SIMD.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks and diagnostics.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Run language models larger than memory, streamed from NVMe.

    \b
    Examples:
      uringinfer pack checkpoint/ model.uring              convert once
      uringinfer plan model.uring --budget 8G              see what fits where
      uringinfer generate model.uring --budget 8G -p "Hi"  run it
      uringinfer doctor model.uring                        see what keeps it slow
    """
    ctx.obj = {"debug": debug}
    if debug:
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")


def _give_up_stdout() -> None:
    """Keeps the exit handlers from writing again what stdout did not take."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Entry point: exit codes are those of uringinfer.errors, 130 for Ctrl-C, 141 for a closed pipe."""
    debug = "--debug" in sys.argv[1:]
    try:
        with redirect_stdout(sys.stdout and _Stdout(sys.stdout)):
            code = cli.main(prog_name=PROGRAM, standalone_mode=False)
    except UringinferError as error:
        if isinstance(error, _StdoutRefused):
            _give_up_stdout()
        if debug:
            raise
        click.echo(f"uringinfer: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else PROGRAM
        click.echo(f"{PROGRAM}: {error.format_message().rstrip('.')}; see '{path} -h'", err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("uringinfer: interrupted", err=True)
        code = 130
    except (_ReaderGone, BrokenPipeError):
        _give_up_stdout()  # end quietly
        code = 141
    except OSError as error:
        # what the machine refused where no room of the package knew more about it: a directory without
        # permission, a full drive
        if debug:
            raise
        what = f"cannot use {error.filename}: " if error.filename else ""
        click.echo(f"{PROGRAM}: {what}{error.strerror or error}", err=True)
        code = EnvironmentError_.exit_code
    sys.exit(code if isinstance(code, int) else 0)
