"""Progress of something long: what is done, pace and time left, on stderr, and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

quiet_option = click.option("--quiet", is_flag=True, help="No progress.")


class Report(Protocol):
    """Called with what is going on, how much is done, how much there is in all, and what is known so far.

    The first call comes before the first step, so that its wait is seen and counted too.
    """

    def __call__(self, what: str, done: int, total: int, detail: str = "") -> None: ...


@contextmanager
def progress(*, unit_is_bytes: bool = True, wanted: bool = True) -> Iterator[Report | None]:
    """A function that draws one bar for each thing it is told of, or None where nobody watches."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    # Late: rich takes a tenth of a second to import and only a terminal needs it.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn

    from uringinfer.cli.pace import Bars, PaceColumn, show_bytes, show_steps

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if unit_is_bytes else MofNCompleteColumn(),
        PaceColumn(show_bytes if unit_is_bytes else show_steps),
        console=Console(stderr=True),
        transient=True,
    ) as display:
        yield Bars(display)
