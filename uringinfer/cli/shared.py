"""Options that several commands share: one name, one meaning, one help text.

Nothing heavy is imported here: some of these commands need no model, and begin at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from uringinfer.api import PRESETS, Placement, ReaderKind, check_writable, parse_size

Command = TypeVar("Command", bound=Callable[..., Any])


class OutputFile(click.Path):
    """A file to write; where it can be seen that it cannot be, it is refused before any work."""

    def __init__(self, *, in_one_step: bool = False) -> None:
        super().__init__(path_type=Path)
        self._in_one_step = in_one_step

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        check_writable(path, in_one_step=self._in_one_step)
        return path


budget = click.option(
    "--budget",
    type=parse_size,
    metavar="SIZE",
    help="Memory of the whole process, such as 8G.  [default: what the machine grants]",
)
preset = click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="Named budgets of trunk and expert cache, instead of --budget.",
)
trunk_budget = click.option(
    "--trunk-budget", type=parse_size, metavar="SIZE", help="Memory of the trunk, pinned segments and ring."
)
cache_budget = click.option(
    "--cache-budget", type=parse_size, metavar="SIZE", help="Memory of the expert cache."
)
threads = click.option(
    "-t", "--threads", type=click.IntRange(1), help="Threads that compute.  [default: all processors]"
)
io = click.option(
    "--io", type=click.Choice(get_args(ReaderKind)), default="auto", show_default=True, help="How to read."
)
verify_reads = click.option(
    "--verify-reads/--no-verify-reads",
    default=True,
    show_default=True,
    help="Check everything that is read against its CRC32 before it is used.",
)
placement = click.option(
    "--placement",
    type=click.Choice(get_args(Placement)),
    default="spread",
    show_default=True,
    help="Which segments to pin: evenly spread ones, or the first.",
)
ring_slots = click.option(
    "--ring-slots",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Segments in flight; 1 reads synchronously.",
)
pack_dir = click.option(
    "--pack-dir", type=click.Path(path_type=Path), help="Where a checkpoint is packed.  [default: the cache]"
)
page = click.option(
    "--report",
    type=OutputFile(),
    metavar="FILE.html",
    help="Write a page that shows what bounds the run.",
)


system = click.option("--system", metavar="TEXT", help="A system text in front of the conversation.")
variables = click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a variable of the chat template, such as enable_thinking=false; may be repeated.",
)


_SAMPLING = (
    click.option("-s", "--seed", type=click.IntRange(0), help="Seed of the sampler.  [default: drawn]"),
    click.option(
        "--temp", "temperature", type=float, default=0.0, show_default=True, help="Temperature; 0 is greedy."
    ),
    click.option(
        "--top-k", type=int, default=0, show_default=True, help="Keep the k likeliest tokens; 0 keeps all."
    ),
    click.option(
        "--top-p", type=float, default=1.0, show_default=True, help="Keep the likeliest up to this sum."
    ),
    click.option(
        "--min-p", type=float, default=0.0, show_default=True, help="Drop below this share of the likeliest."
    ),
    click.option(
        "--repeat-penalty",
        type=float,
        default=1.0,
        show_default=True,
        help="Penalty of recent tokens; 1 is off.",
    ),
    click.option(
        "--repeat-window",
        type=int,
        default=64,
        show_default=True,
        help="How many tokens are recent; -1 is all of them.",
    ),
)


def sampling(command: Command) -> Command:
    """The options that say which token is chosen."""
    for option in reversed(_SAMPLING):
        command = option(command)
    return command


def chunk(default: int) -> Callable[[Command], Command]:
    """`--chunk`; what a model is loaded with by default is for those to say who load one."""
    return click.option(
        "--chunk",
        type=click.IntRange(1),
        default=default,
        show_default=True,
        help="Prompt tokens fed in one pass over the weights.",
    )


def preset_budgets(
    name: str | None, trunk_budget: int | None, cache_budget: int | None
) -> tuple[int | None, int | None]:
    """Bytes of trunk and expert cache; those of the preset where none are given."""
    if name is None:
        return trunk_budget, cache_budget
    return trunk_budget or PRESETS[name].trunk_bytes, cache_budget or PRESETS[name].cache_bytes
