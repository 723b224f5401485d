"""`uringinfer doctor`: what on this machine, or about a model, keeps a run from being good."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from uringinfer.api import READ_SECONDS, Finding, Status, diagnose, read_build_facts
from uringinfer.cli.progress import progress, quiet_option

SCHEMA_VERSION = 1
_COLOURS = {Status.OK: "green", Status.NOTE: "yellow", Status.PROBLEM: "red"}


@click.command()
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option(
    "--deep",
    is_flag=True,
    help="Also read and check all: a container as `verify` does, a checkpoint by its download's digests.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=READ_SECONDS,
    show_default=True,
    help="How long to read MODEL's files to clock the drive; 0 leaves it out.",
)
@quiet_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: Path | None, deep: bool, seconds: float, quiet: bool, as_json: bool) -> None:
    """Check everything that decides whether a run will be good: one line each, with the remedy.

    Without MODEL it checks the machine: kernel, io_uring, native kernels, processor, huge pages, memory and
    its limits. With MODEL (a container, a checkpoint directory or a GGUF file) also its files, direct I/O,
    free space, the drive's speed, tokenizer and chat template. Nothing is changed.

    Exits with 0, or with 1 if there is a problem. A note means: it works, and could be better.

    \b
    Examples:
      uringinfer doctor                      the machine alone
      uringinfer doctor model.uring          the machine and a model
      uringinfer doctor model.uring --deep   and all of its checksums
      uringinfer doctor model.uring --json   for a script
    """
    findings = []
    with progress(wanted=not quiet) as show:
        checking = None if show is None else lambda done, total: show("checking", done, total)
        for finding in diagnose(model, deep=deep, seconds=seconds, progress=checking):
            findings.append(finding)
            if not as_json:
                click.echo(_line(finding))
    has_problem = any(finding.status is Status.PROBLEM for finding in findings)
    if as_json:
        report = {
            "schema_version": SCHEMA_VERSION,
            "ok": not has_problem,
            "build": read_build_facts().to_json(),
            "findings": [finding.to_json() for finding in findings],
        }
        click.echo(json.dumps(report, ensure_ascii=False, indent=1))
    sys.exit(1 if has_problem else 0)


def _line(finding: Finding) -> str:
    status = f"{finding.status:<7}"
    if not os.environ.get("NO_COLOR"):
        status = click.style(status, fg=_COLOURS[finding.status])  # echo drops it where nobody looks
    message = f"{finding.message}; {finding.remedy}" if finding.remedy else finding.message
    return f"{status}  {finding.check:<13}  {message}"
