"""`uringinfer shard`: a container's experts over several drives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from uringinfer.api import EnvironmentError_, UsageError, format_rate, format_size, random_file, shard
from uringinfer.cli.progress import progress, quiet_option

PROBE_BYTES = 512 << 20
PROBE_SECONDS = 1.0


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--to", "directories", multiple=True, type=click.Path(path_type=Path), help="A directory on each drive."
)
@click.option("--weights", metavar="W,W,...", help="Shares of the drives, such as 2,1. [default: equal]")
@click.option("--measure", is_flag=True, help="Shares by each drive's read rate, clocked for a second.")
@click.option("--back", is_flag=True, help="Bring the experts back into MODEL.")
@quiet_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    model: Path,
    directories: tuple[Path, ...],
    weights: str | None,
    measure: bool,
    back: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Spread the routed experts of the container MODEL over several drives.

    Expert e goes to drive e mod N, or more often to a faster one; a run then reads from all drives at once.
    Records are copied into a directory on each drive, checked on the way, and removed from MODEL, which keeps
    the rest. Interrupted, MODEL is as it was before.

    \b
    Examples:
      uringinfer shard model.uring --to /mnt/a --to /mnt/b
      uringinfer shard model.uring --to /mnt/fast --to /mnt/slow --measure
      uringinfer shard model.uring --back
    """
    if bool(directories) == back:
        raise UsageError("give --to for each drive, or --back", hint="see 'uringinfer shard -h'")
    if weights is not None and measure:
        raise UsageError("--weights and --measure exclude each other", hint="give one of them")
    shares = _measured(directories) if measure else _parsed(weights)
    with progress(wanted=not quiet) as report:
        result = shard(
            model,
            directories,
            weights=shares,
            progress=None if report is None else lambda done, total: report("moving experts", done, total),
        )
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=1))
        return
    for drive in result.drives:
        size = format_size(drive.nbytes)
        click.echo(f"{drive.path}: {drive.records} experts, {size}, {drive.share:.1%}")
    where = f"on {len(result.drives)} drives" if result.drives else "in the container"
    click.echo(f"{result.records} experts of {model}, {format_size(result.nbytes)}, lie {where}")


def _parsed(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"'{text}' are no weights", hint="write them as 2,1") from None


def _measured(directories: Sequence[Path]) -> list[float]:
    """The read rate of each drive, in bytes per second, on a file of random bytes."""
    from uringinfer.api import clock_reads  # late: the doctor brings the engine with it

    rates = []
    for directory in directories:
        with random_file(directory, PROBE_BYTES) as file:
            rate = clock_reads(file, PROBE_SECONDS)
        if rate is None:
            raise EnvironmentError_(
                f"the rate of {directory} could not be clocked", hint="give the weights with --weights"
            )
        rates.append(rate.bytes_per_second)
        click.echo(f"{directory}: {format_rate(rates[-1])}", err=True)
    return rates
