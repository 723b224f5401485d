"""The command `uringinfer`: finds the subcommand, turns errors into one line and an exit code."""

from __future__ import annotations

import ast
import importlib
import logging
import sys
from importlib import resources
from typing import Any

import click

from uringinfer.cli.failures import PROGRAM, failure_of
from uringinfer.cli.interrupts import end_of_start_up
from uringinfer.cli.streams import StdoutRefused, give_up_stdout, guarded_streams

_HELP_WIDTH = 100

# name -> module; a command's module is imported only when it is called, so that `-h` is instant
COMMANDS = {
    "bench": "uringinfer.cli.bench",
    "chat": "uringinfer.cli.chat",
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


class LazyGroup(click.Group):
    """A group whose commands live in modules that are imported on demand; each has a `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: Any = importlib.import_module(COMMANDS[cmd_name]).command
        end_of_start_up()
        return command  # type: ignore[no-any-return]

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)  # prints the help and the version
        except BrokenPipeError as error:
            raise _ReaderGone from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
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
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("uringinfer").setLevel(logging.DEBUG)


def main() -> None:
    """Entry point: exit codes are those of uringinfer.errors, 130 for Ctrl-C, 141 for a closed pipe, 1 for a
    mistake in this program. Whatever happens is one line; `--debug` adds the traceback."""
    debug = "--debug" in sys.argv[1:]
    with guarded_streams():
        try:
            result = cli.main(prog_name=PROGRAM, standalone_mode=False)
            code = result if isinstance(result, int) else 0
        except SystemExit:
            raise
        except (_ReaderGone, BrokenPipeError):
            give_up_stdout()  # end quietly
            code = 141
        except BaseException as error:
            if isinstance(error, StdoutRefused):
                give_up_stdout()
            failure = failure_of(error)
            if debug and not failure.is_known:
                raise
            click.echo(failure.line, err=True)
            code = failure.code
    sys.exit(code)
