"""A conversation: messages in, tokens out.

Every turn renders the whole history in the model's chat format, looks how much of it the session was fed
already, and feeds what follows. So whatever a format does with earlier turns (a default system text,
reasoning that is dropped, numbered results) is right, and a turn costs what is new in it. Tokens that the
model chose stay as they were chosen, as long as the rendered text is what they spell (`engine/prefix.py`).

Where the history changed (a format that drops reasoning, a message that was edited or taken back), the
session goes back to the last place that is still right; where its state forgets, to the nearest snapshot, one
of which is taken at the end of each turn's prompt.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from uringinfer.engine.generation import Generation, GenerationOptions, Listener
from uringinfer.engine.keywords import TurnKeywords, check_keywords, turn_options
from uringinfer.engine.prefix import common_prefix
from uringinfer.engine.run import Stream
from uringinfer.engine.session import Session, check_room
from uringinfer.errors import UsageError
from uringinfer.text.rendering import Message

if TYPE_CHECKING:
    from uringinfer.engine.engine import Engine

Said = str | Message | Sequence[Message]
"""What is said: a user's text, a message, or several (results of tools, say)."""
_TURN_NAMES = frozenset(TurnKeywords.__annotations__)


class Conversation:
    """Made by `Engine.conversation` and `Engine.load_conversation`.

    `messages` is the history, OpenAI's dictionaries: add to it, change it or cut it, and the next turn goes
    on from there. `variables` are what the chat format is told besides, such as enable_thinking.
    """

    def __init__(
        self,
        engine: Engine,
        session: Session,
        *,
        system: str | None = None,
        messages: Sequence[Message] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """Raises UsageError for a model without a chat format."""
        engine.prompter.need_template()
        self.messages: list[dict[str, Any]] = [dict(message) for message in messages]
        self.tools = tools
        self.variables: dict[str, Any] = dict(variables or {})
        self._engine = engine
        self._session = session
        self._open: weakref.ref[Stream] | None = None
        if system is not None:
            self.system = system

    @property
    def system(self) -> str | None:
        """The system message in front, None if there is none; set it, or set it to None."""
        first = self.messages[0] if self.messages else {}
        return first["content"] if first.get("role") == "system" else None

    @system.setter
    def system(self, text: str | None) -> None:
        rest = self.messages[1:] if self.system is not None else self.messages
        self.messages[:] = rest if text is None else [{"role": "system", "content": text}, *rest]

    @property
    def session(self) -> Session:
        """What was fed, and the state of it."""
        return self._session

    def say(
        self,
        said: Said,
        options: GenerationOptions | None = None,
        *,
        listener: Listener | None = None,
        **keywords: Unpack[TurnKeywords],
    ) -> Generation:
        """Adds what is said to the messages, then the reply to it, which is returned with its statistics.

        An interrupt ends the reply where it is. Raises UsageError for what cannot be fed: messages that the
        chat format refuses, or more than the context has room for; then nothing was said.
        """
        return _finished(self.stream(said, options, listener=listener, **keywords))

    def stream(
        self,
        said: Said,
        options: GenerationOptions | None = None,
        *,
        listener: Listener | None = None,
        **keywords: Unpack[TurnKeywords],
    ) -> Stream:
        """`say`, in pieces while it happens. Leaving it early keeps what there is as the reply."""
        self._close()
        before = list(self.messages)
        self.messages += _as_messages(said)
        try:
            return self._answer(_options(options, keywords), listener, before)
        except BaseException:
            self.messages[:] = before
            raise

    def reply(
        self,
        options: GenerationOptions | None = None,
        *,
        listener: Listener | None = None,
        **keywords: Unpack[TurnKeywords],
    ) -> Generation:
        """The reply to the messages as they are; a reply that is there already is given anew."""
        return _finished(self.stream_reply(options, listener=listener, **keywords))

    def stream_reply(
        self,
        options: GenerationOptions | None = None,
        *,
        listener: Listener | None = None,
        **keywords: Unpack[TurnKeywords],
    ) -> Stream:
        """`reply`, in pieces while it happens."""
        self._close()
        before = list(self.messages)
        if self.messages and self.messages[-1]["role"] == "assistant":
            del self.messages[-1]
        return self._answer(_options(options, keywords), listener, before)

    def go_on(
        self,
        options: GenerationOptions | None = None,
        *,
        listener: Listener | None = None,
        **keywords: Unpack[TurnKeywords],
    ) -> Stream:
        """Goes on with the last reply where it was cut short, in pieces; what comes is added to its content.

        Raises UsageError if there is no reply."""
        self._close()
        if not self.messages or self.messages[-1]["role"] != "assistant" or not self._session.length:
            raise UsageError("there is no reply to go on with", hint="say something first")
        options = _options(options, keywords)
        last, session = self.messages[-1], self._session

        def hear(generation: Generation) -> None:
            last["content"] = (last.get("content") or "") + generation.text

        if session.chosen in self._engine.prompter.need_tokenizer().eos_ids and not options.ignore_eos:
            raise UsageError("the last reply is whole", hint="say something to go on")
        self._make_whole()
        self._engine.trunk.resume()
        ids = [] if session.chosen is None else [session.chosen]
        stream = self._engine.run(session, ids, options, listener, prompt_ids=ids, on_end=hear)
        self._open = weakref.ref(stream)
        return stream

    def undo(self) -> list[dict[str, Any]]:
        """Takes the last turn back, from what the user said on. Returns its messages, none if there was no
        turn."""
        self._close()
        places = [place for place, message in enumerate(self.messages) if message["role"] == "user"]
        if not places:
            return []
        taken = self.messages[places[-1] :]
        del self.messages[places[-1] :]
        return taken

    def save(self, path: Path | str) -> None:
        """Writes messages and state to `path`, in one step.

        Raises UsageError if nothing was fed yet, EnvironmentError_ if the file cannot be written.
        """
        self._close()
        self._make_whole()
        self._session.save(path, self.messages, self.tools, self.variables)

    def _answer(
        self, options: GenerationOptions, listener: Listener | None, before: list[dict[str, Any]]
    ) -> Stream:
        """A stream of the reply to the messages as they are; `before` are those to go back to."""
        engine, session = self._engine, self._session
        engine.trunk.resume()
        ids, parser = engine.prompter.render(self.messages, self._asked())
        ids, kept = self._aligned(ids)
        check_room(0, len(ids), session.context)
        fed = session.rewind(kept)
        if fed == len(ids) and session.last_logits is None:
            fed = session.rewind(fed - 1)
        session.chosen = None
        stream = engine.run(
            session,
            ids[fed:],
            options,
            listener,
            prompt_ids=ids,
            parser=parser,
            on_end=lambda generation: self._hear(generation, before),
        )
        self._open = weakref.ref(stream)
        return stream

    def _aligned(self, rendered: Sequence[int]) -> tuple[list[int], int]:
        """The prompt with the tokens that the model chose in it, and how many of its tokens are fed."""
        session = self._session
        fed = session.fed if session.chosen is None else [*session.fed, session.chosen]
        ours, theirs = common_prefix(fed, rendered, self._engine.prompter.need_tokenizer())
        return [*fed[:ours], *rendered[theirs:]], min(ours, session.length)

    def _hear(self, generation: Generation, before: list[dict[str, Any]]) -> None:
        """Keeps the reply; a turn that ended before there was any of it was none."""
        if generation.tokens:
            message = generation.message  # None where the end token did not count
            self.messages.append(message or {"role": "assistant", "content": generation.text})
        elif generation.finish_reason == "interrupted":
            self.messages[:] = before

    def _make_whole(self) -> None:
        """Has a state to save, if an interrupt left none: the last there was, with the logits behind it."""
        session = self._session
        if not session.is_whole:
            session.rewind(session.length)
        if session.length and session.last_logits is None:
            fed = list(session.fed)
            self._engine.trunk.resume()
            session.feed(fed[session.rewind(len(fed) - 1) :])

    def _close(self) -> None:
        """Ends a stream that was left open."""
        stream = None if self._open is None else self._open()
        if stream is not None:
            stream.close()
        self._open = None

    def _asked(self) -> dict[str, Any]:
        return {"tools": self.tools, "variables": self.variables}


def _finished(stream: Stream) -> Generation:
    for _ in stream:
        pass
    return stream.generation


def _options(options: GenerationOptions | None, keywords: Mapping[str, Any]) -> GenerationOptions:
    check_keywords(keywords, _TURN_NAMES, "a turn")
    if options is not None and keywords:
        raise UsageError("options were given twice", hint="give an object or keywords, not both")
    return options or turn_options(keywords)


def _as_messages(said: Said) -> list[dict[str, Any]]:
    if isinstance(said, str):
        return [{"role": "user", "content": said}]
    messages: list[Any] = list(said) if isinstance(said, Sequence) else [said]
    if not messages or not all(isinstance(message, dict) and "role" in message for message in messages):
        raise UsageError(f"{said!r} is no message", hint="give text, or dictionaries with a role and content")
    return [dict(message) for message in messages]
