"""`uringinfer chat`: a conversation with a model in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from uringinfer import api
from uringinfer.api import UsageError
from uringinfer.cli import loading, shared
from uringinfer.cli.chat_input import open_input
from uringinfer.cli.chat_loop import Chat
from uringinfer.cli.chat_screen import Screen
from uringinfer.cli.progress import progress
from uringinfer.cli.values import parse_variables

_THINKING = ("enable_thinking", "thinking")
"""Variables by which chat formats know whether to think."""
_SNAPSHOTS = 4


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@shared.system
@shared.variables
@click.option("--no-think", is_flag=True, help="Answer without reasoning, where the chat format knows that.")
@click.option(
    "--session",
    type=shared.OutputFile(in_one_step=True),
    help="Go on with the conversation in this file if it is there, and keep it there at the end.",
)
@click.option(
    "--chat-template", type=click.Path(path_type=Path), help="A Jinja file instead of the model's own."
)
@click.option(
    "-n",
    "--max-tokens",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Tokens of an answer, at most.",
)
@click.option(
    "-c", "--context", type=click.IntRange(1), help="Room for so many tokens.  [default: 4096 or the model's]"
)
@shared.chunk(api.DEFAULT_CHUNK)
@shared.threads
@shared.sampling
@shared.budget
@shared.preset
@shared.trunk_budget
@shared.cache_budget
@shared.io
@shared.placement
@shared.ring_slots
@shared.verify_reads
@shared.pack_dir
@click.option("--quiet", is_flag=True, help="The answers alone: nothing on stderr but errors.")
def command(model: Path, **options: Any) -> None:
    """Talk with MODEL: a container, a checkpoint directory or a GGUF file.

    Enter sends, Alt-Enter begins a new line. Ctrl-C ends an answer and keeps it, a second one leaves, as
    Ctrl-D does. With a pipe as stdin, every line is a turn. Lines that begin with / are commands; /help lists
    them.

    \b
    Examples:
      uringinfer chat model.uring --budget 8G
      uringinfer chat model.uring --system "Be brief." --temp 0.7
      uringinfer chat model.uring --session talk.session
      printf 'Who are you?\\nWhy?\\n' | uringinfer chat model.uring
    """
    if options["budget"] is not None and options["preset"] is not None:
        raise UsageError("--budget and --preset exclude each other", hint="give --budget")
    say = loading.silent if options["quiet"] else loading.say
    with progress(wanted=not options["quiet"]) as report:
        opened = api.open_model(
            model,
            threads=options["threads"],
            pack_dir=options["pack_dir"],
            chat_template=options["chat_template"],
            progress=report,
            announce=say,
        )
        variables = _variables(opened, options)
        engine = opened.load(_load_options(options), report)
    with engine:
        for line in (engine.setup.to_text(), *(f"note: {note}" for note in engine.notes)):
            say(line)
        conversation = _conversation(engine, options["session"], options["system"], variables)
        names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_window", "seed")
        settings = {name: options[name] for name in (*names, "max_tokens")}
        screen = Screen(quiet=options["quiet"])
        chat = Chat(engine, conversation, settings, open_input(screen), screen)
        code = chat.run()
        if options["session"] is not None and chat.conversation.session.length:
            chat.conversation.save(options["session"])
    sys.exit(code)


def _variables(opened: api.OpenModel, options: dict[str, Any]) -> dict[str, Any]:
    """What the chat format is told. Raises UsageError if there is none, or none that knows --no-think."""
    template = opened.prompter.need_template()
    variables = parse_variables(options["variables"])
    if options["no_think"]:
        known = next((name for name in _THINKING if template.knows(name)), None)
        if known is None:
            raise UsageError(
                f"{template.name} knows no switch for thinking", hint="leave --no-think out, or see --var"
            )
        variables[known] = False
    return variables


def _load_options(options: dict[str, Any]) -> api.LoadOptions:
    trunk_budget, cache_budget = shared.preset_budgets(
        options["preset"], options["trunk_budget"], options["cache_budget"]
    )
    return api.LoadOptions(
        budget=options["budget"],
        trunk_budget=trunk_budget,
        cache_budget=cache_budget,
        context=options["context"],
        chunk=options["chunk"],
        io=options["io"],
        placement=options["placement"],
        ring_slots=options["ring_slots"],
        verify_reads=options["verify_reads"],
        snapshots=_SNAPSHOTS,
    )


def _conversation(
    engine: api.Engine, path: Path | None, system: str | None, variables: dict[str, Any]
) -> api.Conversation:
    if path is None or not path.exists():
        return engine.conversation(system, variables=variables)
    conversation = engine.load_conversation(path)
    conversation.variables |= variables
    if system is not None:
        conversation.system = system
    return conversation
