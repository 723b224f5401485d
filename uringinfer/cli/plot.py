"""Figures, drawn by matplotlib, which is an extra and imported only when a plot is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from uringinfer.errors import EnvironmentError_


def new_figure(panels: int) -> tuple[Any, list[Any]]:
    """A figure with so many panels, one above the other.

    Raises EnvironmentError_ if matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise EnvironmentError_(
            "--plot needs matplotlib, which is not installed", hint="pip install 'uringinfer[plot]'"
        ) from None
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
