"""Tables as plain text: they stay whole in a pipe and in a narrow window."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, align: str) -> str:
    """Columns two spaces apart. `align` has a '<' or '>' for each column; a header of '' shows none."""
    lines = [list(header), *map(list, rows)] if any(header) else list(map(list, rows))
    widths = [max((len(line[column]) for line in lines), default=0) for column in range(len(align))]
    shown = []
    for line in lines:
        cells = [
            cell.ljust(width) if side == "<" else cell.rjust(width)
            for cell, width, side in zip(line, widths, align, strict=True)
        ]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)
