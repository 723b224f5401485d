"""Options that several commands share: one name, one meaning, one help text."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from uringinfer.engine.loading import DEFAULT_CHUNK
from uringinfer.planning.planner import Placement
from uringinfer.storage.reader import ReaderKind
from uringinfer.units import parse_size

budget = click.option(
    "--budget",
    type=parse_size,
    metavar="SIZE",
    help="Memory of the whole process, such as 8G.  [default: what the machine grants]",
)
trunk_budget = click.option(
    "--trunk-budget", type=parse_size, metavar="SIZE", help="Memory of the trunk, pinned segments and ring."
)
cache_budget = click.option(
    "--cache-budget", type=parse_size, metavar="SIZE", help="Memory of the expert cache."
)
chunk = click.option(
    "--chunk",
    type=click.IntRange(1),
    default=DEFAULT_CHUNK,
    show_default=True,
    help="Prompt tokens fed in one pass over the weights.",
)
threads = click.option(
    "-t", "--threads", type=click.IntRange(1), help="Threads that compute.  [default: all processors]"
)
io = click.option(
    "--io", type=click.Choice(get_args(ReaderKind)), default="auto", show_default=True, help="How to read."
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
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Write a page that shows what bounds the run.",
)
