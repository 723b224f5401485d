"""`uringinfer bench`: tokens per second of a model, and what bounds them, at one or many settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import click

from uringinfer import api
from uringinfer.api import UsageError
from uringinfer.cli import shared
from uringinfer.cli.bench_plot import draw
from uringinfer.cli.bench_table import as_csv, as_markdown, head, row_json
from uringinfer.cli.plot import plot_option
from uringinfer.cli.progress import progress, quiet_option
from uringinfer.cli.values import parse_counts, parse_sizes

OUTPUTS = ("md", "csv", "json", "jsonl")


def _readers(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    unknown = next((name for name in names if name not in get_args(api.ReaderKind)), None)
    if unknown is not None:
        raise UsageError(f"no reader is called '{unknown}'", hint="choose from auto, uring, preadv")
    return names


def _positive_counts(text: str) -> list[int]:
    counts = parse_counts(text)
    if not all(counts):
        raise UsageError(f"'{text}' has a 0 in it", hint="give 1 or more")
    return counts


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-p",
    "--prompt",
    type=click.IntRange(0),
    default=512,
    show_default=True,
    help="Prompt tokens; 0 leaves it out.",
)
@click.option(
    "-n",
    "--generate",
    type=click.IntRange(0),
    default=128,
    show_default=True,
    help="Decoded tokens; 0 leaves it out.",
)
@click.option(
    "-d", "--depth", type=click.IntRange(0), default=0, show_default=True, help="Tokens in front, not timed."
)
@click.option(
    "-r", "--repetitions", type=click.IntRange(1), default=5, show_default=True, help="Repetitions."
)
@shared.chunk(api.DEFAULT_CHUNK)
@click.option(
    "--budget", "budgets", type=parse_sizes, metavar="SIZE,...", help="Memory of the whole process."
)
@click.option(
    "--io",
    "readers",
    type=_readers,
    default="auto",
    show_default=True,
    metavar="NAME,...",
    help="How to read: auto, uring, preadv.",
)
@click.option("-t", "--threads", type=_positive_counts, metavar="N,...", help="Threads that compute.")
@click.option(
    "--lookahead",
    "lookaheads",
    type=parse_counts,
    default=str(api.DEFAULT_LOOKAHEAD),
    show_default=True,
    metavar="N,...",
    help="Experts guessed and read ahead.",
)
@click.option(
    "-b",
    "--batch",
    "batches",
    type=_positive_counts,
    default="1",
    show_default=True,
    metavar="N,...",
    help="Conversations fed together; tokens/s is that of all of them.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="md",
    show_default=True,
    help="Shape of the results.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
@plot_option("Draw tokens/s over the budget, under what drive and memory allow")
@shared.page
@shared.verify_reads
@shared.pack_dir
@quiet_option
def command(
    model: Path,
    prompt: int,
    generate: int,
    depth: int,
    repetitions: int,
    chunk: int,
    budgets: list[int] | None,
    readers: list[api.ReaderKind],
    threads: list[int] | None,
    lookaheads: list[int],
    batches: list[int],
    output: str,
    as_json: bool,
    plot: Path | None,
    report: Path | None,
    verify_reads: bool,
    pack_dir: Path | None,
    quiet: bool,
) -> None:
    """Measure how fast MODEL reads a prompt (pp) and decodes (tg).

    Lists sweep: every combination is measured in a process of its own, and one table compares them. Tokens
    are random, so no tokenizer is needed. Warming up, loading and the depth are not timed.

    \b
    Examples:
      uringinfer bench model.uring --budget 8G
      uringinfer bench model.uring --budget 2G,4G,8G -p 0 -n 32 --plot out.png
      uringinfer bench model.uring --io uring,preadv --threads 1,2 -o csv
      uringinfer bench model.uring -d 4096 -o json
    """
    output = "json" if as_json else output
    if plot is not None and budgets is None:
        raise UsageError("--plot draws tokens/s over the budget", hint="give --budget 2G,4G,8G as well")
    workloads = api.workloads_of(prompt, generate, depth)
    settings = api.settings_of(budgets or [None], readers, threads or [None], lookaheads, batches)
    # the processes that measure open the model; here it would take memory from them
    with progress(wanted=not quiet) as packing:
        path = api.find_container(model, pack_dir, packing, lambda line: click.echo(line, err=True))
    bench = api.Bench(path, tuple(workloads), repetitions, chunk, report is not None, verify_reads)
    results = _run(bench, settings, output, wanted=not quiet)
    if output == "json":
        rows = [row_json(setting, result) for setting, result in results]
        click.echo(json.dumps(head(bench) | {"results": rows}, indent=1))
    elif output != "jsonl":
        click.echo((as_csv if output == "csv" else as_markdown)(results))
    if not quiet:
        checked = "every read is checked" if verify_reads else "no read is checked"
        rate = api.format_rate(api.check_rate())
        click.echo(f"{checked}; {api.CHECKSUM_LIBRARY} checks {rate} on one core", err=True)
    if report is not None:
        api.write_page(report, [result for _, result in results if isinstance(result, api.Measurement)])
    if plot is not None:
        draw(plot, results, api.measure_rates(api.open_model(path)))


def _run(
    bench: api.Bench, settings: Sequence[api.Setting], output: str, *, wanted: bool
) -> list[tuple[api.Setting, api.BenchResult]]:
    """All results, each printed at once as JSON Lines. Raises the last refusal if no setting can run."""
    results = []
    with progress(unit_is_bytes=False, wanted=wanted) as report:
        for number, setting in enumerate(settings, start=1):
            prefix = f"[{number}/{len(settings)}] " if len(settings) > 1 else ""
            for pair in api.run_bench(bench, [setting], _prefixed(report, prefix)):
                results.append(pair)
                if output == "jsonl":
                    click.echo(json.dumps(head(bench) | row_json(*pair)))
    refusals = [result.error for _, result in results if isinstance(result, api.Refusal)]
    if len(refusals) == len(results):
        raise refusals[-1]
    return results


def _prefixed(report: Any, prefix: str) -> Callable[[str, int, int], None] | None:
    if report is None:
        return None
    return lambda what, done, total: report(f"{prefix}{what}", done, total)
