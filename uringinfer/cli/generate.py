"""`uringinfer generate`: text from a prompt, streamed to stdout; everything else goes to stderr."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from uringinfer import api
from uringinfer.api import UsageError
from uringinfer.cli import generate_batch, generate_turn, loading, shared
from uringinfer.cli.inputs import read_text
from uringinfer.cli.progress import progress

INTERRUPTED = 130
DEFAULT_PARALLEL = 4


def _token_ids(text: str) -> list[int]:
    try:
        return [int(number) for number in re.split(r"\s*,\s*|\s+", text.strip())] if text.strip() else []
    except ValueError:
        raise click.BadParameter(f"'{text}' is not a list of token numbers such as 1,2,3") from None


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("dash", metavar="[-]", required=False)
@click.option(
    "-p",
    "--prompt",
    "prompts",
    metavar="TEXT",
    multiple=True,
    help="The prompt. Several run as one batch, see --prompts.",
)
@click.option(
    "--prompts",
    "prompts_file",
    type=click.Path(path_type=Path),
    metavar="FILE.jsonl",
    help="Answer every line of a file as one batch (- is stdin), with JSON lines in the order asked.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where the answers of a batch go; those that are there already are not made again.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 256),
    default=DEFAULT_PARALLEL,
    show_default=True,
    help="Prompts of a batch that share passes at a time; each takes memory for its context.",
)
@click.option(
    "--swap",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep conversations of a batch here when memory is short, for prompts that begin alike.",
)
@click.option(
    "--draft",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="A small model of the same vocabulary that guesses tokens ahead; it never changes the text.",
)
@click.option(
    "--guesses",
    type=click.IntRange(0, 64),
    help="Most tokens that a pass checks ahead; 0 guesses none.  [default: what is worth it]",
)
@click.option(
    "-f", "--file", type=click.Path(path_type=Path), help="Read the prompt from a file (- is stdin)."
)
@click.option(
    "--ids",
    type=_token_ids,
    metavar="N,N,...",
    help="The prompt as token numbers, such as 1,2,3; needs no tokenizer.",
)
@click.option("--raw", is_flag=True, help="Do not put the prompt into the model's chat format.")
@shared.system
@shared.variables
@click.option(
    "--chat-template", type=click.Path(path_type=Path), help="A Jinja file instead of the model's own."
)
@click.option(
    "-n",
    "--max-tokens",
    type=click.IntRange(0),
    default=128,
    show_default=True,
    help="Tokens to generate; 0 only reads the prompt.",
)
@click.option(
    "-c", "--context", type=click.IntRange(1), help="Room for so many tokens.  [default: what is needed]"
)
@shared.chunk(api.DEFAULT_CHUNK)
@shared.threads
@shared.sampling
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be repeated.")
@click.option("--ignore-eos", is_flag=True, help="Go on behind the model's end token.")
@shared.budget
@shared.preset
@shared.trunk_budget
@shared.cache_budget
@click.option(
    "--policy",
    type=click.Choice(api.ONLINE_POLICIES),
    default=api.DEFAULT_POLICY,
    show_default=True,
    help="Which expert the cache gives up.",
)
@click.option(
    "--lookahead",
    type=click.IntRange(0),
    default=api.DEFAULT_LOOKAHEAD,
    show_default=True,
    help="Experts of the next layer that are guessed and read ahead; 0 guesses none.",
)
@click.option(
    "--experts-per-token",
    type=click.IntRange(1),
    help="Let each token use so many experts. The only option that changes answers.",
)
@click.option(
    "--trace",
    type=shared.OutputFile(),
    help="Write which experts each token used: JSON lines, or int32 pairs in FILE.bin.",
)
@click.option("--learn", is_flag=True, help="Remember which experts were used, for the next start.")
@shared.io
@shared.placement
@shared.ring_slots
@click.option(
    "--save-session",
    type=shared.OutputFile(in_one_step=True),
    help="Write the conversation to this file at the end.",
)
@click.option(
    "--load-session",
    type=click.Path(path_type=Path),
    help="Go on with the conversation in this file; a prompt is its next turn, none just goes on.",
)
@shared.verify_reads
@shared.pack_dir
@shared.page
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the text.")
@click.option("--stats/--no-stats", default=True, show_default=True, help="Statistics on stderr.")
@click.option("--quiet", is_flag=True, help="The text alone: nothing on stderr but errors.")
@click.option("--logits-out", type=shared.OutputFile(), help="Write the logits, float32 [positions, vocab].")
def command(model: Path, dash: str | None, **options: Any) -> None:
    """Generate text with MODEL: a container, a checkpoint directory or a GGUF file.

    The prompt comes from -p, -f, --ids, or from stdin with -. Several prompts run as
    one batch: each pass over the weights serves all of them. The first Ctrl-C ends the turn and keeps the
    text, the second one quits; both exit with 130.

    \b
    Examples:
      uringinfer generate model.uring -p "Why is the sky blue?"
      uringinfer generate model.uring --budget 8G -n 256 --temp 0.7 -f ask.txt
      uringinfer generate model.uring --raw -p "The capital of France is"
      uringinfer generate model.uring --json - < ask.txt
      uringinfer generate model.uring --prompts ask.jsonl -o answers.jsonl
    """
    if options["prompts_file"] is not None or len(options["prompts"]) > 1:
        sys.exit(_run_batch(model, dash, options))
    for name in ("output", "swap"):
        if options[name] is not None:
            raise UsageError(f"--{name} is for a batch", hint="give several -p, or --prompts FILE.jsonl")
    text = options["prompts"][0] if options["prompts"] else None
    prompt = read_text(text, options["file"], dash, budget=options["budget"])
    if prompt is None and options["ids"] is None and options["load_session"] is not None:
        options["ids"] = []
    if (prompt is None) == (options["ids"] is None):
        given = "no prompt was given" if prompt is None else "both text and --ids were given"
        raise UsageError(given, hint="give one of -p TEXT, -f FILE, --ids 1,2,3, or - to read stdin")
    if options["budget"] is not None and options["preset"] is not None:
        raise UsageError("--budget and --preset exclude each other", hint="give --budget")
    generation_options = loading.generation_options(
        options
    )  # what is wrong is told before anything is loaded
    generation = generate_turn.run(model, prompt, options, generation_options)
    if options["as_json"]:
        click.echo(json.dumps(generation.to_json(), ensure_ascii=False))
    if options["stats"] and not options["quiet"]:
        click.echo(generation.stats.to_text(), err=True)
    if generation.finish_reason == "interrupted":
        sys.exit(INTERRUPTED)


def _run_batch(path: Path, dash: str | None, options: dict[str, Any]) -> int:
    """Answers several prompts at a time; the exit code."""
    generate_batch.check_options(options, dash)
    defaults = loading.generation_options(options)
    lines = generate_batch.lines_of(options["prompts"], options["prompts_file"], options["budget"])
    say = loading.silent if options["quiet"] else loading.say
    with progress(wanted=not options["quiet"]) as report:
        opened = loading.open_model(path, options, report, say)
    parallel = min(options["parallel"], max(1, sum(bool(line.strip()) for line in lines)))

    def load(tokens: int, prompt_tokens: int) -> api.Engine:
        context = options["context"] or opened.context_for(tokens)
        load_options = replace(
            loading.load_options(opened, prompt_tokens, 0, options), context=context, parallel=parallel
        )
        with progress(wanted=not options["quiet"]) as report:
            return loading.load(opened, load_options, options, report)

    return generate_batch.run(opened, lines, options, defaults, load, say)
