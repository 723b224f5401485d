"""`uringinfer probe`: what a drive gives, at each block size and queue depth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from uringinfer import api
from uringinfer.api import UsageError, format_rate, format_size, parse_size
from uringinfer.cli.plot import plot_option
from uringinfer.cli.probe_plot import draw
from uringinfer.cli.progress import progress, quiet_option
from uringinfer.cli.table import format_table

_HEADER = (
    "way",
    "pattern",
    "block",
    "QD",
    "GB/s",
    "IOPS",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max us",
    "submit",
    "complete",
    "user",
    "kernel",
    "short",
    "errors",
    "first",
    "last",
    "",
)


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--quick", is_flag=True, help="The cells that matter, in under 20 seconds.")
@click.option("--normal", is_flag=True, help="The default: about a minute.")
@click.option("--full", is_flag=True, help="Every cell; about ten minutes.")
@click.option(
    "--size", type=parse_size, metavar="SIZE", help="Size of the test file, or how much of a file to read."
)
@click.option("--require-direct", is_flag=True, help="Fail (exit 3) where the page cache is not bypassed.")
@click.option("--save", is_flag=True, help="Remember the best rate of this drive, for `plan`.")
@plot_option("Draw the rates")
@quiet_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with fio's names.")
def command(
    path: Path,
    quick: bool,
    normal: bool,
    full: bool,
    size: int | None,
    require_direct: bool,
    save: bool,
    plot: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure how fast the drive below PATH can be read.

    PATH is a directory, where a test file of random bytes is written and removed; or a container, whose own
    files are read; or a file or block device. Only what came from a drive counts: reads from a cache, from
    holes of a sparse file, or faster than the drive's bus are shown and marked.

    Latencies in microseconds, CPU in milliseconds per GB, first and last tenth of the time in GB/s.

    \b
    Examples:
      uringinfer probe --quick /mnt/nvme
      uringinfer probe model.uring --save
      uringinfer probe . --full --json > probe.json
    """
    mode = _mode(quick=quick, normal=normal, full=full)
    with progress(unit_is_bytes=False, wanted=not quiet) as report:
        found = api.probe(
            path,
            mode=mode,
            size=size,
            require_direct=require_direct,
            progress=report,
        )
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
    else:
        for line in (*_condition_lines(found.conditions), "", _table(found.rows), "", found.verdict):
            click.echo(line)
    if plot is not None:
        draw(found, plot)
    if save:
        where = api.save_rate(found)
        click.echo(f"saved in {where}", err=True)


def _mode(*, quick: bool, normal: bool, full: bool) -> api.ProbeMode:
    if quick + normal + full > 1:
        raise UsageError("--quick, --normal and --full exclude each other", hint="give one of them")
    if quick:
        return "quick"
    return "full" if full else "normal"


def _condition_lines(found: api.ProbeConditions) -> list[str]:
    device = found.device
    drive = "unknown" if device is None else " ".join(filter(None, [device.name, device.model]))
    ceiling_name, ceiling = found.ceiling
    alignment = found.alignment
    flags = ", ".join(found.ring_flags) or "no flags"
    cgroups = ", ".join(f"{name} = {format_size(limit)}" for name, limit in found.cgroup_limits)
    memlock = "unlimited" if found.memlock_soft is None else format_size(found.memlock_soft)
    lines = [
        ("reads", f"{format_size(found.nbytes)} of {found.path}"),
        ("file system", found.filesystem),
        ("device", f"{drive}; at most {format_rate(ceiling)} by {ceiling_name}"),
        ("direct", f"{'yes' if found.direct else 'no'} ({found.direct_reason})"),
        (
            "DIOALIGN",
            f"memory {alignment.memory}, offset {alignment.offset}" if alignment else "statx does not say",
        ),
        ("kernel", found.kernel),
        ("ring", found.ring_denial or f"{flags}; {found.registration_note or 'memory registered'}"),
        ("huge pages", f"{format_size(found.huge_bytes)} of {format_size(found.arena_bytes)}"),
        ("memlock", memlock),
        ("memory", f"{format_size(found.memory_limit)} usable, bounded by {found.memory_limit_name}"),
        ("cgroup", cgroups or "no memory limit"),
    ]
    return [f"{name:<12} {text}" for name, text in lines]


def _table(rows: Sequence[api.ProbeRow]) -> str:
    return format_table(_HEADER, [_cells(row) for row in rows], align="<<" + ">" * 17 + "<")


def _cells(row: api.ProbeRow) -> list[str]:
    cell, measured = row.cell, row.measured
    gigabytes = max(measured.nbytes, 1) / 1e9
    total = measured.total
    latencies = (total.p50, total.p90, total.p99, total.p99_9, total.max)
    return [
        cell.way,
        cell.pattern,
        format_size(cell.block_bytes).replace(".00", ""),
        str(cell.queue_depth),
        f"{measured.bytes_per_second / 1e9:.3f}",
        f"{measured.reads_per_second:.0f}",
        *(f"{latency * 1e6:.0f}" for latency in latencies),
        f"{measured.submit.p50 * 1e6:.0f}",
        f"{measured.complete.p50 * 1e6:.0f}",
        f"{measured.user_seconds * 1e3 / gigabytes:.1f}",
        f"{measured.system_seconds * 1e3 / gigabytes:.1f}",
        str(measured.short_reads),
        str(measured.errors),
        f"{measured.first_tenth / 1e9:.2f}",
        f"{measured.last_tenth / 1e9:.2f}",
        f"not a drive: {row.not_a_drive}" if row.not_a_drive else "",
    ]
