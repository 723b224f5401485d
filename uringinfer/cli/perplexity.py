"""`uringinfer perplexity`: how well a model predicts a text, and what a smaller format of it costs."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from uringinfer import api
from uringinfer.api import (
    SHORTEST_WINDOW,
    Comparison,
    Interrupted,
    Machine,
    PerplexityResult,
    check_same_model,
    count_windows,
    measure_perplexity,
    score_room,
)
from uringinfer.cli import shared
from uringinfer.cli.inputs import read_text
from uringinfer.cli.interrupts import first_interrupt
from uringinfer.cli.progress import Report, progress, quiet_option

SCHEMA_VERSION = 1
_DEFAULT_SHARE = 0.75
"""Of what the machine grants, for both models of a comparison together where no budget is given."""


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-c",
    "--context",
    type=click.IntRange(SHORTEST_WINDOW),
    default=512,
    show_default=True,
    help="Tokens of a window.",
)
@click.option("--windows", type=click.IntRange(1), help="Score only so many windows.  [default: all]")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="OTHER",
    help="Compare with this container of the same model, as the reference.",
)
@click.option(
    "--chunk", type=click.IntRange(1), default=256, show_default=True, help="Tokens fed in one pass."
)
@shared.threads
@shared.budget
@shared.io
@quiet_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(model: Path, file: Path, **options: Any) -> None:
    """Score the text in FILE (- is stdin) with MODEL: its perplexity, with the standard error.

    The text is cut into windows of -c tokens; the second half of each is scored, the first is its context.
    --against prints how far MODEL's predictions are from OTHER's: Kullback-Leibler divergence and how often
    both have the same likeliest token.

    \b
    Examples:
      uringinfer perplexity model.uring text.txt
      uringinfer perplexity model.uring text.txt --windows 20 --budget 2G
      uringinfer perplexity model-q4.uring text.txt --against model.uring
    """
    texts = [read_text(None, file, None, what="the text", budget=options["budget"]) or ""]
    began = time.perf_counter()
    result, interrupted = _measure(model, texts, options)
    seconds = time.perf_counter() - began
    if result is not None:
        if options["as_json"]:
            report = {"schema_version": SCHEMA_VERSION, "model": str(model), **result.to_json()}
            report["against"] = None if options["against"] is None else str(options["against"])
            click.echo(json.dumps({**report, "seconds": seconds, "interrupted": interrupted}))
        else:
            _show(result, options["against"])
    if interrupted:
        click.echo("uringinfer: interrupted", err=True)
        sys.exit(Interrupted.exit_code)


def _measure(path: Path, texts: list[str], options: dict[str, Any]) -> tuple[PerplexityResult | None, bool]:
    """The result for the one of `texts`, which is taken out of it, as far as it came, and whether it was
    interrupted."""
    text = texts.pop()
    result: PerplexityResult | None = None
    with ExitStack() as stack:
        budget = options["budget"]
        reference = None
        with progress(wanted=not options["quiet"]) as loading:
            opened = api.open_model(path, threads=options["threads"], progress=loading)
            if options["against"] is not None:
                other = api.open_model(options["against"], threads=options["threads"], progress=loading)
                check_same_model(opened, other, text)
            tokenizer = opened.prompter.need_tokenizer()
            ids = opened.encode_text(text)
            del text  # what follows plans with the memory that is in use
            windows = count_windows(len(ids), options["context"], options["windows"])
            scores = score_room(windows, options["context"], compared=options["against"] is not None)
            if options["against"] is not None:
                # the second model's plan counts the first one's memory as in use already
                budget = budget or int(Machine.read().usable_bytes * _DEFAULT_SHARE)
                reference = _load(other, budget // 2, options, loading)
                stack.enter_context(reference)
            engine = _load(opened, budget, options, loading)
            stack.enter_context(engine)
        for line in (engine.setup.to_text(), *(f"note: {note}" for note in engine.notes)):
            click.echo(line, err=True)
        stack.enter_context(first_interrupt(engine.interrupt))
        report = stack.enter_context(progress(unit_is_bytes=False, wanted=not options["quiet"]))
        if report is not None:
            report("perplexity", 0, windows)
        results = measure_perplexity(
            engine,
            ids,
            context=options["context"],
            bos_id=tokenizer.bos_id if tokenizer.adds_bos else None,
            max_windows=options["windows"],
            reference=reference,
            scores=scores,
        )
        try:
            for result in results:
                if report is not None:
                    report("perplexity", result.windows, windows, f"{result.perplexity:.3f}")
        except Interrupted:
            return result, True
    return result, False


def _load(
    opened: api.OpenModel, budget: int | None, options: dict[str, Any], report: Report | None
) -> api.Engine:
    load_options = api.LoadOptions(
        budget=budget,
        context=options["context"],
        chunk=min(options["chunk"], options["context"]),
        io=options["io"],
        all_logits=True,
    )
    return opened.load(load_options, report)


def _show(result: PerplexityResult, against: Path | None) -> None:
    windows = f"{result.windows} of {result.windows_in_all} windows"
    scored = f"{windows} of {result.context} tokens, {len(result.losses)} tokens scored"
    click.echo(f"perplexity {result.perplexity:.3f} ± {result.error:.3f} ({scored})")
    if result.comparison is not None:
        _show_comparison(result.comparison, against)


def _show_comparison(comparison: Comparison, against: Path | None) -> None:
    click.echo(f"reference  {comparison.reference_perplexity:.3f} ({against})")
    divergence, error = comparison.mean_divergence, comparison.divergence_error
    click.echo(f"divergence {divergence:.6f} ± {error:.6f} nats a token, from the reference")
    click.echo(f"same top-1 {comparison.agreement:.2%} of the tokens")
