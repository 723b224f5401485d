"""From the options of a command to a model that is loaded and to how it is to generate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from uringinfer import api
from uringinfer.cli import shared
from uringinfer.cli.progress import Report


def open_model(
    path: Path, options: dict[str, Any], report: Report | None, say: Callable[[str], None]
) -> api.OpenModel:
    return api.open_model(
        path,
        threads=options["threads"],
        pack_dir=options["pack_dir"],
        chat_template=options["chat_template"],
        experts_per_token=options["experts_per_token"],
        progress=report,
        announce=say,
    )


def load(
    opened: api.OpenModel, load_options: api.LoadOptions, options: dict[str, Any], report: Report | None
) -> api.Engine:
    """The model loaded, with its draft model if there is one."""
    if options["draft"] is None:
        return opened.load(load_options, report)
    draft = api.open_model(options["draft"], threads=options["threads"], progress=report)
    return api.load_with_draft(opened, draft, load_options, report)


def load_options(
    opened: api.OpenModel, prompt_tokens: int, saved_tokens: int, options: dict[str, Any]
) -> api.LoadOptions:
    tokens = saved_tokens + prompt_tokens + options["max_tokens"]
    context = options["context"] or opened.context_for(tokens)
    trunk_budget, cache_budget = shared.preset_budgets(
        options["preset"], options["trunk_budget"], options["cache_budget"]
    )
    return api.LoadOptions(
        budget=options["budget"],
        trunk_budget=trunk_budget,
        cache_budget=cache_budget,
        cache_policy=options["policy"],
        lookahead=options["lookahead"],
        context=context,
        chunk=min(options["chunk"], max(prompt_tokens, 1)),
        io=options["io"],
        placement=options["placement"],
        ring_slots=options["ring_slots"],
        all_logits=options["logits_out"] is not None,
        guesses=options["guesses"],
        verify_reads=options["verify_reads"],
        timeline=options["report"] is not None,
    )


def generation_options(options: dict[str, Any]) -> api.GenerationOptions:
    sampling = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_window", "seed")
    return api.GenerationOptions(
        max_tokens=options["max_tokens"],
        sampling=api.SamplingOptions(**{name: options[name] for name in sampling}),
        stop=options["stop"],
        ignore_eos=options["ignore_eos"],
    )


def say(line: str) -> None:
    """Says a line on stderr."""
    click.echo(line, err=True)


def silent(line: str) -> None:
    """Says nothing."""
