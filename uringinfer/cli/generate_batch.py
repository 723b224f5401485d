"""`uringinfer generate` with several prompts: one batch, answers as JSON lines in the order asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from uringinfer import api
from uringinfer.api import EnvironmentError_, Interrupted, UsageError
from uringinfer.cli.inputs import read_text
from uringinfer.cli.interrupts import first_interrupt
from uringinfer.cli.progress import progress
from uringinfer.cli.values import parse_variables

_NOT_TOGETHER = (
    "ids",
    "file",
    "load_session",
    "save_session",
    "logits_out",
    "trace",
    "learn",
    "report",
    "as_json",
)
"""Options of one conversation, which mean nothing for many."""


def check_options(options: dict[str, Any], dash: str | None) -> None:
    """Raises UsageError for what only one prompt can have, and for prompts from two places."""
    for name in _NOT_TOGETHER:
        if options[name]:
            flag = "--json" if name == "as_json" else "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is for a single prompt", hint="leave it out, or give one prompt")
    if dash is not None or (options["prompts"] and options["prompts_file"] is not None):
        raise UsageError("the prompts were given more than once", hint="choose one of -p and --prompts")


def lines_of(prompts: Sequence[str], path: Path | None, budget: int | None) -> list[str]:
    """The lines of prompts: of the file, or made of the texts given. Raises what `read_text` raises."""
    if path is None:
        return [api.prompt_line(text) for text in prompts]
    text = read_text(None, path, None, what="the prompts", budget=budget) or ""
    return text.split("\n")  # and at nothing else that Unicode calls the end of a line


def run(
    opened: api.OpenModel,
    lines: Sequence[str],
    options: dict[str, Any],
    defaults: api.GenerationOptions,
    load: Callable[[int, int], api.Engine],
    say: Callable[[str], None],
) -> int:
    """Answers every line; `load` gives an engine for a context and a prompt of so many tokens. Returns the
    exit code: 130 if interrupted, 2 if a prompt could not be answered."""
    told = {
        "raw": options["raw"],
        "system": options["system"],
        "variables": parse_variables(options["variables"]),
    }
    asked = api.read_prompts(lines, lambda prompt: opened.prompter.prompt_ids(prompt, told), defaults)
    if not asked:
        raise UsageError("there is no prompt", hint="give -p TEXT, or a file with a line for each")
    with ExitStack() as stack:
        output, done = _open_output(options["output"], asked, stack)
        if done:
            say(f"note: {done} of {len(asked)} answers are there already")
        if done == len(asked):
            return 0
        todo = [prompt for prompt in asked[done:] if prompt.error is None]
        needed = max((len(p.request.ids) + p.request.options.max_tokens for p in todo), default=1)
        longest = max((len(prompt.request.ids) for prompt in todo), default=1)
        engine = stack.enter_context(load(needed, longest))
        for line in (engine.setup.to_text(), *(f"note: {note}" for note in engine.notes)):
            say(line)
        stack.enter_context(first_interrupt(engine.interrupt))
        report = stack.enter_context(progress(unit_is_bytes=False, wanted=not options["quiet"]))

        def show(answered: int, under_way: int, tokens: int) -> None:
            if report is not None:
                report("answering", done + answered, len(asked), f"{under_way} under way, {tokens} tokens")

        try:
            result = api.run_job(
                engine, asked[done:], lambda line: _write(output, line), show, options["swap"]
            )
        except Interrupted:
            return 130
    text = result.statistics.to_text()
    if options["stats"] and text:
        say(text)
    if result.errors:
        say(f"{result.errors} of {result.answered} prompts could not be answered: their lines say why")
        return 2
    return 0


def _open_output(path: Path | None, asked: Sequence[api.Asked], stack: ExitStack) -> tuple[BinaryIO, int]:
    """Where answers go, and how many are there already; what breaks off behind them is cut."""
    if path is None:
        return sys.stdout.buffer, 0
    try:
        file = stack.enter_context(path.open("r+b" if path.exists() else "w+b"))
        lines = file.readlines()
        done = api.answered_before(lines, asked, str(path))
        file.seek(sum(len(line) for line in lines[:done]))
        file.truncate()
    except OSError as error:
        raise EnvironmentError_(f"cannot write {path}: {os.strerror(error.errno or 0)}") from error
    return file, done


def _write(output: BinaryIO, line: str) -> None:
    output.write(line.encode())
    output.flush()
