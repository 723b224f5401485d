"""One turn of `uringinfer generate`: a prompt or a conversation's next message, and the text that follows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from uringinfer import api
from uringinfer.api import UsageError
from uringinfer.cli import loading
from uringinfer.cli.interrupts import first_interrupt
from uringinfer.cli.progress import progress
from uringinfer.cli.values import parse_variables


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the model: `messages` of a conversation, or `ids` to feed as they are.

    `prompt_ids` are all tokens of the prompt, `saved` the session to go on with and its header.
    """

    messages: list[dict[str, Any]] | None
    ids: list[int]
    saved: tuple[Path, api.SessionHeader] | None
    variables: dict[str, Any]

    @property
    def tokens(self) -> int:
        """Tokens that stand before what is generated."""
        before = len(self.saved[1].ids) if self.saved else 0
        return max(before, len(self.ids)) if self.messages is not None else before + len(self.ids)


def run(
    path: Path, prompt: str | None, options: dict[str, Any], generation_options: api.GenerationOptions
) -> api.Generation:
    """Loads the model, says what came of it, and generates."""
    say = loading.silent if options["quiet"] else loading.say
    with progress(wanted=not options["quiet"]) as report:
        opened = loading.open_model(path, options, report, say)
        asked = _asked(opened, prompt, options)
        load_options = loading.load_options(opened, len(asked.ids), asked.tokens - len(asked.ids), options)
        if asked.messages is not None and asked.ids:
            opened.check_turn(asked.ids, load_options)
        if asked.messages is None or asked.saved is not None:
            opened.check_turn([] if asked.messages else asked.ids, load_options, asked.saved)
        if options["trace"]:
            opened.check_experts("trace")
        if options["learn"]:
            opened.check_learning()
        engine = loading.load(opened, load_options, options, report)
    with engine, ExitStack() as stack:
        for line in (engine.setup.to_text(), *(f"note: {note}" for note in engine.notes)):
            say(line)
        if options["trace"] is not None:
            engine.trace_to(stack.enter_context(api.TraceWriter(options["trace"])))
            stack.callback(engine.end_trace)
        conversation, session = _begin(engine, asked)
        listener = _listener(engine, len(asked.ids), options, stack)
        saves = options["save_session"] is not None
        stack.enter_context(
            first_interrupt(lambda: engine.interrupt(after_pass=saves and not session.can_rewind))
        )
        if conversation is None:
            stream = engine.stream(asked.ids, generation_options, listener, session=session)
        elif prompt is None:
            stream = conversation.go_on(generation_options, listener=listener)
        else:
            stream = conversation.stream(prompt, generation_options, listener=listener)
        for text in shown(stream):
            if not options["as_json"]:
                click.echo(text, nl=False)
                sys.stdout.flush()
        generation = stream.generation
        if generation.tokens and not options["as_json"]:
            click.echo()
        if options["learn"]:
            engine.learn()
        if options["report"] is not None:
            api.write_run_page(options["report"], engine, generation)
        if options["save_session"] is not None:
            _save(conversation, session, options["save_session"], say)
    for note in generation.notes[len(engine.notes) :]:
        say(f"note: {note}")
    return generation


def shown(stream: api.Stream) -> Iterator[str]:
    """The texts of a stream; reasoning stands between <think> and </think>."""
    kind = "answer"
    for piece in stream:
        if not piece.text:
            continue
        if (piece.kind == "reasoning") != (kind == "reasoning"):
            yield "<think>\n" if piece.kind == "reasoning" else "\n</think>\n\n"
        kind = piece.kind
        yield piece.text


def _asked(opened: api.OpenModel, prompt: str | None, options: dict[str, Any]) -> Asked:
    saved_path: Path | None = options["load_session"]
    saved = None if saved_path is None else (saved_path, api.read_header(saved_path))
    variables = parse_variables(options["variables"])
    history = None if saved is None else saved[1].messages
    if prompt is None and history is None:
        _refuse_chat_options(options, "token numbers have")
        return Asked(None, options["ids"], saved, {})
    is_chat = opened.prompter.template is not None and not options["raw"]
    if not is_chat or (saved is not None and history is None):
        _refuse_chat_options(options, "this session has" if is_chat else "a prompt as it is has")
        ids = opened.encode(prompt or "", raw=options["raw"], goes_on=saved is not None)
        return Asked(None, ids, saved, {})
    if saved is not None:
        variables = {**(saved[1].variables or {}), **variables}
    messages = [dict(message) for message in history or ()]
    if options["system"] is not None:
        messages = [message for message in messages if message["role"] != "system"]
        messages.insert(0, {"role": "system", "content": options["system"]})
    if prompt is None:
        return Asked(messages, [], saved, variables)
    said = [*messages, {"role": "user", "content": prompt}]
    tools = saved[1].tools if saved else None
    ids, _ = opened.prompter.render(said, {"variables": variables, "tools": tools})
    return Asked(messages, ids, saved, variables)


def _refuse_chat_options(options: dict[str, Any], who: str) -> None:
    for name, given in (("--system", options["system"] is not None), ("--var", bool(options["variables"]))):
        if given:
            raise UsageError(f"{name} is for a chat format, and {who} none", hint=f"leave {name} out")


def _begin(engine: api.Engine, asked: Asked) -> tuple[api.Conversation | None, api.Session]:
    if asked.messages is None:
        session = engine.load_session(asked.saved[0]) if asked.saved else engine.session()
        return None, session
    if asked.saved is not None:
        conversation = engine.load_conversation(asked.saved[0])
        conversation.messages[:] = asked.messages
        conversation.variables = asked.variables
    else:
        conversation = engine.conversation(messages=asked.messages, variables=asked.variables)
    return conversation, conversation.session


def _save(
    conversation: api.Conversation | None, session: api.Session, path: Path, say: Callable[[str], None]
) -> None:
    """Saves what there is; an interrupted run may have nothing to save."""
    if not session.length:
        say("note: the session was interrupted before anything was fed and is not saved")
    elif conversation is not None and (session.is_whole or session.has_marks):
        conversation.save(path)
    elif not session.is_whole:
        say("note: the session was interrupted inside a pass, this model cannot take it back: not saved")
    else:
        session.save(path)


def _listener(engine: api.Engine, tokens: int, options: dict[str, Any], stack: ExitStack) -> api.Listener:
    """Writes logits where they are asked for, and shows how much of the prompt is read, on a line that is
    cleared before the first text comes."""
    logits = options["logits_out"] and stack.enter_context(
        api.LogitsFile(options["logits_out"], engine.model.vocab_size)
    )
    display = stack.enter_context(ExitStack())
    report = display.enter_context(progress(unit_is_bytes=False, wanted=not options["quiet"]))
    if report is not None and tokens:
        report("reading the prompt", 0, tokens)

    def listen(done: int, total: int) -> None:
        if report is not None:
            report("reading the prompt", done, total)
        if done == total:
            display.close()

    return api.Listener(logits=logits.append if logits else None, prompt=listen)
