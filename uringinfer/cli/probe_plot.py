"""The picture of a probe: rate over block size, a line for each way and depth, a panel for each pattern.

Where that is too many lines for a panel, as with `--full`, each way has a panel of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from uringinfer import api
from uringinfer.api import format_size
from uringinfer.cli.plot import new_figure, save_figure

_MOST_LINES = 12
"""What a legend beside a panel holds."""
_Lines = Mapping[str, list[tuple[int, float]]]
"""Label -> points (block bytes, GB/s)."""


def draw(report: api.ProbeReport, path: Path) -> None:
    """Writes the picture to `path`, in the format of its ending; only rates of a drive are drawn.

    Raises EnvironmentError_ without matplotlib, or if `path` cannot be written.
    """
    contents = panels_of(report)
    figure, panels = new_figure(max(len(contents), 1))
    for panel, (title, lines) in zip(panels, contents.items(), strict=False):
        for label, points in lines.items():
            blocks, rates = zip(*sorted(points), strict=True)
            panel.plot(blocks, rates, marker="o", label=label)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(lambda value, _: format_size(round(value)).replace(".00", ""))
        panel.tick_params(labelbottom=True)
        panel.set(title=title, xlabel="block", ylabel="GB/s", ylim=(0, None))
        panel.grid(alpha=0.3)
        panel.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    words = [report.conditions.path, *report.verdict.split("; ")]
    figure.suptitle("\n".join(words), fontsize="medium")
    save_figure(figure, path)


def panels_of(report: api.ProbeReport) -> dict[str, _Lines]:
    """Title -> the panel's lines."""
    rows = [row for row in report.rows if row.not_a_drive is None]
    kinds = {(row.cell.pattern, row.cell.way, row.cell.queue_depth) for row in rows}
    patterns = [pattern for pattern, _, _ in kinds]
    is_crowded = any(patterns.count(pattern) > _MOST_LINES for pattern in patterns)
    panels: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cell, depth = row.cell, f"QD {row.cell.queue_depth}"
        point = (cell.block_bytes, row.measured.bytes_per_second / 1e9)
        if is_crowded:
            panels[f"{cell.way}, {cell.pattern}"][depth].append(point)
        else:
            panels[cell.pattern.value][f"{cell.way}, {depth}"].append(point)
    return dict(panels)
