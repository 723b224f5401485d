"""`uringinfer simulate`: what expert caches of several sizes and policies would have hit on a trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from uringinfer.api import (
    DEFAULT_POLICY,
    POLICIES,
    Machine,
    SimulationResult,
    Trace,
    UsageError,
    format_rate,
    format_size,
    parse_rate,
    parse_size,
    read_trace,
    simulate,
    slots_of,
)
from uringinfer.cli.plot import new_figure, plot_option, save_figure
from uringinfer.cli.progress import progress, quiet_option
from uringinfer.cli.table import format_table
from uringinfer.cli.values import parse_counts, parse_sizes

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Costs:
    """What makes bytes and time of hits and misses; None where it is not known."""

    record_bytes: int | None
    drive: float | None
    usable_bytes: int

    def capacity(self, result: SimulationResult) -> int | None:
        return None if self.record_bytes is None else result.slots * self.record_bytes

    def exceeds_memory(self, result: SimulationResult) -> bool:
        """Whether the cache is larger than what this machine grants a process: its hits would be page
        faults."""
        return (self.capacity(result) or 0) > self.usable_bytes

    def seconds_per_token(self, result: SimulationResult) -> float | None:
        if self.record_bytes is None or self.drive is None:
            return None
        return result.bytes_per_token(self.record_bytes) / self.drive

    def to_json(self, result: SimulationResult) -> dict[str, Any]:
        return {
            **result.to_json(self.record_bytes),
            "capacity_bytes": self.capacity(result),
            "read_seconds_per_token": self.seconds_per_token(result),
            "exceeds_memory": self.exceeds_memory(result),
        }


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--slots", type=parse_counts, metavar="N,N,...", help="Cache sizes in records.")
@click.option(
    "--capacity", type=parse_sizes, metavar="SIZE,...", help="Cache sizes in bytes, such as 8GB,16GB."
)
@click.option("--record-bytes", type=parse_size, metavar="SIZE", help="Size of one expert's record.")
@click.option(
    "--policy",
    "policies",
    default="lru,lfu,lfru,belady",
    show_default=True,
    metavar="NAME,...",
    help="lru, lfu, lfru (what runs use by default), belady (the best that can be, knowing the future).",
)
@click.option("--drive", type=parse_rate, metavar="RATE", help="Drive rate such as 2.0GB/s, to give times.")
@quiet_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@plot_option("Draw the hit rates")
def command(
    trace: Path,
    slots: list[int] | None,
    capacity: list[int] | None,
    record_bytes: int | None,
    policies: str,
    drive: float | None,
    quiet: bool,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Replay a trace of routed experts against caches of several sizes.

    TRACE is what `uringinfer generate --trace` writes: JSON lines, or raw pairs of little-endian int32,
    (layer, expert). A record is one expert of one layer; `uringinfer info` shows its size.

    \b
    Examples:
      uringinfer simulate t.jsonl --slots 199,399,798,1597
      uringinfer simulate t.jsonl --capacity 8G --record-bytes 17M --drive 2GB/s
      uringinfer simulate t.jsonl --slots 9,99 --policy lfru,belady --plot a.png
    """
    names = _policies(policies)
    sizes = _slots(slots, capacity, record_bytes)
    costs = Costs(record_bytes, drive, Machine.read().usable_bytes)
    replayed = read_trace(trace)
    runs = [(name, size) for size in sizes for name in names]
    results: list[SimulationResult] = []
    with progress(unit_is_bytes=False, wanted=not quiet) as report_progress:
        for name, size in runs:
            if report_progress is not None:
                report_progress("simulating", len(results), len(runs))
            results.append(simulate(replayed, name, slots=size))
    if plot is not None:
        _draw(plot, results, costs)
    if as_json:
        report = {
            "schema_version": SCHEMA_VERSION,
            "requests": replayed.requests,
            "distinct": replayed.distinct,
            "tokens": replayed.passes,
            "results": [costs.to_json(result) for result in results],
        }
        click.echo(json.dumps(report, indent=1))
    else:
        click.echo(_text(replayed, results, names, costs))


def _policies(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    unknown = next((name for name in names if name not in POLICIES), None)
    if unknown is not None:
        raise UsageError(f"no cache policy is called '{unknown}'", hint=f"choose from {', '.join(POLICIES)}")
    return names


def _slots(slots: list[int] | None, capacity: list[int] | None, record_bytes: int | None) -> list[int]:
    if slots is None and capacity is None:
        raise UsageError("no cache size was given", hint="give --slots, or --capacity with --record-bytes")
    if slots is not None and capacity is not None:
        raise UsageError("--slots and --capacity exclude each other", hint="give one of them")
    if record_bytes is not None and record_bytes < 1:
        raise UsageError(f"a record of {record_bytes} bytes cannot be", hint="see `uringinfer info`")
    if capacity is None:
        return slots or []
    if record_bytes is None:
        raise UsageError("--capacity needs --record-bytes", hint="`uringinfer info` shows a model's")
    return slots_of(capacity, record_bytes)


def _text(trace: Trace, results: Sequence[SimulationResult], names: Sequence[str], costs: Costs) -> str:
    """A line for each size: the hit rate of every policy, and what the default (or the first) one costs."""
    costed = DEFAULT_POLICY if DEFAULT_POLICY in names else names[0]
    header = ["slots", "capacity", *(f"{name} %" for name in names), f"read/token ({costed})", "s/token", ""]
    rows = []
    for start in range(0, len(results), len(names)):
        of_size = {result.policy: result for result in results[start : start + len(names)]}
        shown = of_size[costed]
        capacity, seconds = costs.capacity(shown), costs.seconds_per_token(shown)
        read = None if costs.record_bytes is None else round(shown.bytes_per_token(costs.record_bytes))
        rows.append(
            [
                str(shown.slots),
                "" if capacity is None else format_size(capacity),
                *(f"{100 * of_size[name].hit_rate:.2f}" for name in names),
                "" if read is None else format_size(read),
                "" if seconds is None else f"{seconds:.3f}",
                "beyond this machine's memory" if costs.exceeds_memory(shown) else "",
            ]
        )
    known = [column for column in range(len(header)) if any(row[column] for row in rows)]
    table = format_table(
        [header[column] for column in known],
        [[row[column] for column in known] for row in rows],
        align="".join("<" if header[column] == "" else ">" for column in known),
    )
    drive = "" if costs.drive is None else f", drive {format_rate(costs.drive)}"
    return f"{trace.requests} requests of {trace.distinct} experts, {trace.passes} tokens{drive}\n\n{table}"


def _draw(path: Path, results: Sequence[SimulationResult], costs: Costs) -> None:
    figure, (axes,) = new_figure(1)
    unit = 1 if costs.record_bytes is None else costs.record_bytes / (1 << 30)
    for name in dict.fromkeys(result.policy for result in results):
        points = sorted(
            (result.slots * unit, 100 * result.hit_rate) for result in results if result.policy == name
        )
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
    if costs.record_bytes is not None and any(costs.exceeds_memory(result) for result in results):
        most = max(result.slots for result in results) * unit
        axes.axvspan(costs.usable_bytes / (1 << 30), most, color="tab:red", alpha=0.1, label="beyond memory")
    axes.set(
        xlabel="cache, records" if costs.record_bytes is None else "cache, GiB",
        ylabel="hits, %",
        ylim=(0, 100),
        title="Hits of the expert cache",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)
