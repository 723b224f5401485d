"""The drawings of a page, as SVG text: a pass over time, its layers, memory against the budget, shares.

Every function returns an `<svg>`; colours come from the page's classes, and what a rectangle stands for is
its `<title>`, which a browser shows under the pointer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from html import escape

from uringinfer.pages.style import KINDS
from uringinfer.planning.memory import PlanRow
from uringinfer.residency.timeline import Interval, PassTimeline
from uringinfer.units import format_size

_Scale = Callable[[float], float]
"""Seconds to the x of a drawing."""

WIDTH = 1040
_LEFT = 96
_RIGHT = 24
_LANE = 13
_MOST_LANES = 4
_MOST_PARTS = 8
READS = {"trunk": "trunk reads", "experts": "expert reads", "rows": "row reads"}


def timeline_chart(timeline: PassTimeline) -> str:
    """The computing thread, and below it the reads in flight, over the time of one pass."""
    seconds = timeline.seconds or 1e-9

    def x(at: float) -> float:
        return _LEFT + at / seconds * (WIDTH - _LEFT - _RIGHT)

    parts = [_layer_bands(timeline, x)]
    parts.append(f'<text x="{_LEFT - 8}" y="43" text-anchor="end">processor</text>')
    for one in timeline.thread:
        what = KINDS[one.kind]
        size = f", {format_size(one.nbytes)}" if one.nbytes else ""
        parts.append(
            _rect(x(one.start), 24, x(one.end) - x(one.start), 30, f"k-{one.kind}", _tip(one, what) + size)
        )
    top = 68
    for kind, label in READS.items():
        reads = [read for read in timeline.reads if read.kind == kind]
        if not reads:
            continue
        lanes = _pack(reads)
        parts.append(f'<text x="{_LEFT - 8}" y="{top + 11}" text-anchor="end">{label}</text>')
        for read, lane in lanes:
            tip = f"{_tip(read, label)}, {format_size(read.nbytes)}"
            width = x(read.end) - x(read.start)
            parts.append(_rect(x(read.start), top + lane * _LANE, width, _LANE - 2, f"k-{kind} flight", tip))
        top += (1 + max(lane for _, lane in lanes)) * _LANE + 10
    parts.append(_time_axis(seconds, x, top))
    return _svg(top + 24, parts, "one pass over time")


def layer_chart(timeline: PassTimeline) -> str:
    """A bar for each layer: upwards its time, computing and waiting; downwards what was read for it."""
    groups = timeline.groups
    times: dict[tuple[str, str], float] = defaultdict(float)
    for one in timeline.thread:
        times[one.group, one.kind] += one.seconds
    read: dict[str, int] = defaultdict(int)
    for one in timeline.reads:
        read[one.group] += one.nbytes
    longest = max((sum(times[group, kind] for kind in KINDS) for group in groups), default=0.0) or 1e-9
    most = max(read.values(), default=0)
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(groups))
    base, height, depth = 150, 130, 56 if most else 0
    parts = [
        f'<text x="{_LEFT - 8}" y="{base - height + 9}" text-anchor="end">{_milliseconds(longest)}</text>',
        f'<text x="{_LEFT - 8}" y="{base - 2}" text-anchor="end">time</text>',
    ]
    if most:
        parts.append(f'<text x="{_LEFT - 8}" y="{base + 13}" text-anchor="end">read</text>')
        parts.append(f'<text x="{_LEFT - 8}" y="{base + depth}" text-anchor="end">{format_size(most)}</text>')
    for number, group in enumerate(groups):
        left, y = _LEFT + number * step, float(base)
        width = max(1.0, step - (2 if step > 6 else 0.5))
        for kind, what in KINDS.items():
            tall = times[group, kind] / longest * height
            y -= tall
            if tall > 0:
                tip = f"{group}: {what} {_milliseconds(times[group, kind])}"
                parts.append(_rect(left, y, width, tall, f"k-{kind}", tip))
        if read[group]:
            tip = f"{group}: {format_size(read[group])} read"
            parts.append(_rect(left, base + 2, width, read[group] / most * depth, "m6", tip))
        if number % max(1, math.ceil(34 / step)) == 0:
            x = left + width / 2
            label = escape(_short(group))
            parts.append(f'<text x="{x:.1f}" y="{base + depth + 18}" text-anchor="middle">{label}</text>')
    return _svg(base + depth + 26, parts, "time and bytes of each layer")


def memory_chart(rows: Sequence[PlanRow], budget: int, peak: int) -> tuple[str, list[tuple[str, str]]]:
    """The budget's parts side by side, and the peak as a mark -> (svg, (class, text) of the legend)."""
    parts, legend = [], []
    whole = max(budget, peak, 1)
    x = 0.0
    for number, (name, nbytes) in enumerate(_largest([(row.name, row.nbytes) for row in rows])):
        width = nbytes / whole * WIDTH
        kind = "m7" if name == "unused" else f"m{number % (_MOST_PARTS - 1)}"
        parts.append(_rect(x, 18, width, 34, kind, f"{name}: {format_size(nbytes)}"))
        legend.append((kind, f"{name} {format_size(nbytes)}"))
        x += width
    mark = min(peak / whole * WIDTH, WIDTH - 1)
    anchor = "end" if mark > WIDTH / 2 else "start"
    parts.append(f'<line class="mark" x1="{mark:.1f}" x2="{mark:.1f}" y1="14" y2="56"/>')
    parts.append(
        f'<text x="{mark:.1f}" y="11" text-anchor="{anchor}">peak {format_size(peak)} of'
        f" {format_size(budget)}</text>"
    )
    return _svg(60, parts, "memory against the budget"), legend


def share_chart(shares: Sequence[tuple[str, float, str]]) -> str:
    """A bar from 0 to 100 % for each (name, share, class)."""
    parts = []
    for number, (name, share, kind) in enumerate(shares):
        y = number * 26 + 4
        room = WIDTH - 190 - 60
        parts.append(f'<text x="182" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="band" x="190" y="{y}" width="{room}" height="18"/>')
        parts.append(_rect(190, y, share * room, 18, kind, f"{name}: {share:.1%}"))
        parts.append(f'<text x="{WIDTH}" y="{y + 13}" text-anchor="end">{share:.1%}</text>')
    return _svg(len(shares) * 26 + 4, parts, "shares")


def _largest(parts: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The largest parts in their order, all others added up as "other", what is unused last."""
    unused = sum(nbytes for name, nbytes in parts if name == "unused")
    used = [(name, nbytes) for name, nbytes in parts if nbytes > 0 and name != "unused"]
    kept = {name for name, _ in sorted(used, key=lambda part: -part[1])[: _MOST_PARTS - 2]}
    other = sum(nbytes for name, nbytes in used if name not in kept)
    shown = [part for part in used if part[0] in kept]
    return shown + [part for part in (("other", other), ("unused", unused)) if part[1] > 0]


def _pack(reads: Sequence[Interval]) -> list[tuple[Interval, int]]:
    """Each read in the first lane that is free when it begins; beyond the last lane they overlap."""
    free = [0.0] * _MOST_LANES
    packed = []
    for read in sorted(reads, key=lambda one: one.start):
        lane = next((n for n, at in enumerate(free) if at <= read.start), _MOST_LANES - 1)
        free[lane] = max(free[lane], read.end)
        packed.append((read, lane))
    return packed


def _layer_bands(timeline: PassTimeline, x: _Scale) -> str:
    """Every second layer shaded, with its name where there is room."""
    bands = []
    for number, (group, start, end) in enumerate(_spans(timeline.thread)):
        width = x(end) - x(start)
        if number % 2:
            bands.append(f'<rect class="band" x="{x(start):.2f}" y="4" width="{width:.2f}" height="54"/>')
        if width > 7 * len(_short(group)) + 4:
            middle = x(start) + width / 2
            bands.append(f'<text x="{middle:.1f}" y="16" text-anchor="middle">{escape(_short(group))}</text>')
    return "".join(bands)


def _spans(thread: Sequence[Interval]) -> Iterator[tuple[str, float, float]]:
    """(layer, start, end), neighbours of one layer joined."""
    start = 0.0
    for number, one in enumerate(thread):
        if number + 1 == len(thread) or thread[number + 1].group != one.group:
            yield one.group, start, one.end
            start = one.end


def _time_axis(seconds: float, x: _Scale, y: float) -> str:
    raw = seconds / 8
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    marks = []
    for number in range(int(seconds / step) + 1):
        at = x(number * step)
        label = _milliseconds(number * step)
        marks.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="58" y2="{y:.0f}"/>')
        marks.append(f'<text x="{at:.1f}" y="{y + 14:.0f}" text-anchor="middle">{label}</text>')
    return "".join(marks)


def _tip(one: Interval, what: str) -> str:
    return f"{one.group}: {what}, {_milliseconds(one.seconds)} from {_milliseconds(one.start)}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _short(group: str) -> str:
    return group.removeprefix("layers.")


def _rect(x: float, y: float, width: float, height: float, kind: str, tip: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.4):.2f}" height="{height:.2f}">'
        f"<title>{escape(tip)}</title></rect>"
    )


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    frame = f'viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}"'
    return f"<svg {frame}>{''.join(parts)}</svg>"
