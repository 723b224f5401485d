"""Figures, drawn by matplotlib, which is an extra and imported only when a plot is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from uringinfer.api import EnvironmentError_, UsageError
from uringinfer.cli.shared import OutputFile

FORMATS = (".eps", ".jpeg", ".jpg", ".pdf", ".png", ".ps", ".svg", ".svgz", ".tif", ".tiff", ".webp")
"""Endings of a plot's name."""
Command = TypeVar("Command", bound=Callable[..., Any])


def plot_option(purpose: str) -> Callable[[Command], Command]:
    """`--plot FILE`, which is refused before any work unless it can be drawn and written."""
    return click.option(
        "--plot",
        type=OutputFile(),
        callback=check_plot,
        metavar="FILE",
        help=f"{purpose} (png, svg, pdf).",
    )


def check_plot(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Raises UsageError unless the name's ending is one of `FORMATS`; EnvironmentError_ if matplotlib is not
    installed."""
    if path is not None and path.suffix.lower() not in FORMATS:
        ending = f"the ending '{path.suffix}'" if path.suffix else "no ending"
        raise UsageError(f"plot '{path}' has {ending}, which is no format", hint="name it .png, .svg or .pdf")
    if path is not None and find_spec("matplotlib") is None:
        raise EnvironmentError_(
            "--plot needs matplotlib, which is not installed", hint="pip install 'uringinfer[plot]'"
        )
    return path


def new_figure(panels: int) -> tuple[Any, list[Any]]:
    """A figure with so many panels, one above the other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 0.5 + 3 * panels), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)
    return figure, [row[0] for row in axes]


def save_figure(figure: Any, path: Path) -> None:
    """Writes `figure` in the format that the name's ending says.

    Raises EnvironmentError_ if that cannot be written.
    """
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise EnvironmentError_(f"plot '{path}' cannot be written: {error}") from error
