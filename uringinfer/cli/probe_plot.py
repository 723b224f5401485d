"""The picture of a probe: rate over block size, a line for each queue depth, a panel for each pattern."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from uringinfer import api
from uringinfer.cli.plot import new_figure, save_figure
from uringinfer.units import format_size


def draw(report: api.ProbeReport, path: Path) -> None:
    """Writes the picture to `path`, in the format of its ending; only rates of a drive are drawn.

    Raises EnvironmentError_ without matplotlib, or if `path` cannot be written.
    """
    lines = _lines(report)
    patterns = list(dict.fromkeys(pattern for pattern, _, _ in lines))
    figure, panels = new_figure(max(len(patterns), 1))
    for panel, pattern in zip(panels, patterns, strict=False):
        for (own_pattern, way, depth), points in lines.items():
            if own_pattern == pattern:
                blocks, rates = zip(*sorted(points), strict=True)
                panel.plot(blocks, rates, marker="o", label=f"{way}, QD {depth}")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(lambda value, _: format_size(round(value)).replace(".00", ""))
        panel.set(title=pattern, xlabel="block", ylabel="GB/s", ylim=(0, None))
        panel.grid(alpha=0.3)
        panel.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(f"{report.conditions.path}\n{report.verdict}", fontsize="medium")
    save_figure(figure, path)


def _lines(report: api.ProbeReport) -> dict[tuple[str, str, int], list[tuple[int, float]]]:
    """(pattern, way, depth) -> points (block bytes, GB/s)."""
    lines = defaultdict(list)
    for row in report.rows:
        if row.not_a_drive is None:
            cell = row.cell
            point = (cell.block_bytes, row.measured.bytes_per_second / 1e9)
            lines[cell.pattern.value, cell.way.value, cell.queue_depth].append(point)
    return dict(lines)
