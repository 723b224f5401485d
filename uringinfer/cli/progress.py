"""Progress of something long: bytes, rate and time left, on stderr, and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

quiet_option = click.option("--quiet", is_flag=True, help="No progress.")


class Report(Protocol):
    """Called with what is going on, how much is done, how much there is in all."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


@contextmanager
def progress(*, unit_is_bytes: bool = True, wanted: bool = True) -> Iterator[Report | None]:
    """A function that draws one bar for each thing it is told of, or None where nobody watches."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    # Late: rich takes a tenth of a second to import and only a terminal needs it.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    amounts: list[ProgressColumn] = (
        [DownloadColumn(), TransferSpeedColumn()] if unit_is_bytes else [MofNCompleteColumn()]
    )
    columns = [TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = display.add_task(what, total=total)
            display.update(tasks[what], completed=done, total=total)

        yield report
