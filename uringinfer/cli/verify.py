"""`uringinfer verify`: every checksum of a container."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from uringinfer.api import IntegrityError, ReaderKind, format_rate, format_size, verify
from uringinfer.cli import shared
from uringinfer.cli.progress import progress, quiet_option


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--workers", type=click.IntRange(1), help="Threads that compute checksums. [default: one per CPU]"
)
@shared.io
@quiet_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: Path, workers: int | None, io: ReaderKind, quiet: bool, as_json: bool) -> None:
    """Check every segment, expert and file of the container MODEL against its CRC32, and its tensors against
    its config.

    Names all that is damaged, one line each. Exits with 0 if nothing is, with 4 if something is.

    \b
    Examples:
      uringinfer verify model.uring
      uringinfer verify model.uring --json
    """
    with progress(wanted=not quiet) as report:
        result = verify(
            model,
            workers=workers,
            reader_kind=io,
            progress=None if report is None else lambda done, total: report("verifying", done, total),
        )
    for note in result.notes:
        click.echo(f"note: {note}", err=True)
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=1))
        sys.exit(0 if result.ok else IntegrityError.exit_code)
    for line in (*result.damaged, *result.unfit):
        click.echo(line)
    if result.unfit:
        raise IntegrityError(
            f"{model} is not what its config says",
            hint="copy the container again, or pack it again with --force",
        )
    if result.damaged:
        raise IntegrityError(
            f"{model}: {len(result.damaged)} of {result.targets} checked parts are damaged",
            hint="copy the container again, or pack it again with --force",
        )
    rate = format_rate(result.nbytes / max(result.seconds, 1e-9))
    how = f"{result.reader}, {'direct' if result.direct else 'buffered'}"
    click.echo(
        f"{model} is undamaged: {result.targets} checksums over {format_size(result.nbytes)}"
        f" in {result.seconds:.1f} s, {rate} ({how}, {result.checksum_library})"
    )
