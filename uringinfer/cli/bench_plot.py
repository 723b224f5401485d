"""The plot of `uringinfer bench`: tokens per second over the budget, and what drive and memory allow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uringinfer import api
from uringinfer.api import format_rate
from uringinfer.cli.plot import new_figure, save_figure

_GIB = 1 << 30
_COLOURS = {"drive": "tab:red", "one read at a time": "tab:orange", "memory or compute": "tab:green"}


def draw(path: Path, results: Sequence[tuple[api.Setting, api.BenchResult]], rates: api.Rates) -> None:
    """One panel for each workload. A dot is a measurement in the colour of what bound it, with ± one standard
    deviation; the lines are what the rates allow. Raises EnvironmentError_ if it cannot be drawn."""
    measured = [result for _, result in results if isinstance(result, api.Measurement)]
    workloads = list(dict.fromkeys(measurement.workload for measurement in measured))
    figure, panels = new_figure(len(workloads))
    for axes, workload in zip(panels, workloads, strict=True):
        _panel(axes, [m for m in measured if m.workload == workload], rates)
        axes.set(title=workload.name, ylabel="tokens/s")
    panels[-1].set_xlabel("budget, GiB")
    save_figure(figure, path)


def _panel(axes: Any, measured: Sequence[api.Measurement], rates: api.Rates) -> None:
    trunk = measured[0].setup.pinned_bytes + measured[0].setup.streamed_bytes
    compute = rates.blended(trunk, max(0.0, measured[0].used_bytes_per_token - trunk))
    lines = api.roofline(measured, rates.drive, compute)
    top = 1.6 * max(m.tokens_per_second for m in measured)
    budgets = [budget / _GIB for budget in lines.budgets]
    for name, ceiling, rate, style in (
        ("drive", lines.drive, rates.drive, "--"),
        ("memory and kernels", lines.memory, compute, ":"),
    ):
        if rate is not None:
            heights = [min(top * 2, height) if height is not None else top * 2 for height in ceiling]
            axes.plot(budgets, heights, style, color="tab:gray", label=f"{name}: {format_rate(rate)}")
    for bound, colour in _COLOURS.items():
        of_bound = [m for m in measured if m.bound_by == bound]
        if of_bound:
            axes.errorbar(
                [m.setup.budget / _GIB for m in of_bound],
                [m.tokens_per_second for m in of_bound],
                yerr=[m.deviation for m in of_bound],
                fmt="o",
                capsize=3,
                color=colour,
                label=f"bound by {bound}",
            )
    axes.set_ylim(0, top)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
