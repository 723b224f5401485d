"""How fast a run can be at most: what the drive allows, and what memory and kernels allow.

Both ceilings are a rate divided by what a token needs: bytes read from the drive, or bytes of weights that
go through the processor. A run lies below the lower one; how far below is what reads and compute that do not
overlap, attention and everything else cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uringinfer.bench.measure import Measurement

POINTS = 64
"""Budgets on a curve between the smallest and the largest measured one."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Ceilings in tokens per second at each of `budgets` (bytes); None where nothing is read or no rate is
    known."""

    budgets: tuple[int, ...]
    drive: tuple[float | None, ...]
    memory: tuple[float | None, ...]


def roofline(
    measurements: Sequence[Measurement], drive_rate: float | None, compute_rate: float | None
) -> Roofline:
    """The ceilings over the budgets of `measurements` of one workload, at rates in bytes per second.

    Between two measured budgets bytes per token change in a straight line, as pinned weights do.
    """
    known = sorted({m.setup.budget: m for m in measurements}.items())
    budgets = _between([budget for budget, _ in known])
    read = _interpolate(budgets, [(budget, m.bytes_per_token) for budget, m in known])
    used = _interpolate(budgets, [(budget, m.used_bytes_per_token) for budget, m in known])
    return Roofline(
        budgets=tuple(budgets),
        drive=tuple(_ceiling(drive_rate, nbytes) for nbytes in read),
        memory=tuple(_ceiling(compute_rate, nbytes) for nbytes in used),
    )


def _ceiling(rate: float | None, nbytes: float) -> float | None:
    return None if rate is None or nbytes <= 0 else rate / nbytes


def _between(budgets: Sequence[int]) -> list[int]:
    first, last = budgets[0], budgets[-1]
    if first == last:
        return [first]
    steps = {first + round((last - first) * n / (POINTS - 1)) for n in range(POINTS)}
    return sorted(steps | set(budgets))


def _interpolate(xs: Sequence[int], known: Sequence[tuple[int, float]]) -> list[float]:
    values = []
    position = 0
    for x in xs:
        while position + 1 < len(known) and known[position + 1][0] <= x:
            position += 1
        (left, low), (right, high) = known[position], known[min(position + 1, len(known) - 1)]
        share = (x - left) / (right - left) if right > left else 0.0
        values.append(low + (high - low) * share)
    return values
