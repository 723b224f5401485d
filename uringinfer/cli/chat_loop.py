"""The loop of a chat: a turn or a command, what comes of it, and on to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from uringinfer import api
from uringinfer.api import UsageError
from uringinfer.cli.chat_commands import SETTINGS, help_text, parse_setting, split_command
from uringinfer.cli.chat_input import Input
from uringinfer.cli.chat_screen import Screen
from uringinfer.cli.interrupts import first_interrupt

INTERRUPTED = 130


class Chat:
    """One conversation at a time; `conversation` is the one that goes on."""

    def __init__(
        self,
        engine: api.Engine,
        conversation: api.Conversation,
        settings: dict[str, Any],
        source: Input,
        screen: Screen,
    ) -> None:
        self.conversation = conversation
        self._engine = engine
        self._settings = settings
        self._input = source
        self._screen = screen
        self._last: api.Generation | None = None
        self._offered = ""

    def run(self) -> int:
        """Until there is no more to say; the exit code."""
        while True:
            offered, self._offered = self._offered, ""
            try:
                line = self._input.ask(offered)
            except EOFError:
                return 0
            except KeyboardInterrupt:
                self._screen.say("(Ctrl-D leaves)")
                continue
            try:
                if line.startswith("/"):
                    if not self._command(*split_command(line)):
                        return 0
                elif line.strip():
                    self._answer(self.conversation.stream(line, **self._keywords()), line)
            except (UsageError, api.EnvironmentError_) as error:
                self._screen.warn(f"uringinfer: {error}")
            except KeyboardInterrupt:
                return INTERRUPTED

    def _keywords(self) -> api.TurnKeywords:
        return self._settings  # type: ignore[return-value]

    def _answer(self, stream: api.Stream, said: str = "") -> None:
        with first_interrupt(self._engine.interrupt), stream:
            self._screen.show(stream)
        self._last = generation = stream.generation
        for note in generation.notes[len(self._engine.notes) :]:
            self._screen.say(f"note: {note}")
        if generation.finish_reason == "interrupted" and not generation.tokens:
            self._screen.say("(interrupted before there was an answer: nothing was said)")
            self._offered = said if self._input.can_edit else ""
            return
        self._screen.say(f"({summary(generation)})")

    def _command(self, name: str, rest: str) -> bool:
        """Whether the chat goes on."""
        talk, say = self.conversation, self._screen.warn
        if name == "quit":
            return False
        if name == "help":
            say(help_text())
        elif name == "system":
            if rest:
                talk.system = None if rest == "-" else rest
            else:
                say(talk.system or "(no system text)")
        elif name == "undo":
            say("(taken back)" if talk.undo() else "(there is no turn to take back)")
        elif name == "retry":
            if not talk.messages or talk.messages[-1]["role"] == "system":
                raise UsageError("there is no turn to answer anew", hint="say something first")
            self._answer(talk.stream_reply(**self._keywords()))
        elif name == "edit":
            self._edit(rest)
        elif name == "reset":
            talk.messages[:] = [message for message in talk.messages if message["role"] == "system"][:1]
        elif name == "save":
            talk.save(_named(rest))
            say(f"(saved in {rest})")
        elif name == "load":
            self.conversation = self._engine.load_conversation(_named(rest))
            say(f"({len(self.conversation.messages)} messages)")
        elif name == "stats":
            say(self._last.stats.to_text() if self._last else "(nothing was answered yet)")
        elif name == "set":
            self._set(rest)
        return True

    def _edit(self, rest: str) -> None:
        said = [message for message in self.conversation.messages if message["role"] == "user"]
        if not said:
            raise UsageError("there is no turn to change", hint="say something first")
        if not rest and not self._input.can_edit:
            raise UsageError("there is no text to say instead", hint="write /edit TEXT")
        self.conversation.undo()
        if rest:
            self._answer(self.conversation.stream(rest, **self._keywords()), rest)
        else:
            self._offered = str(said[-1]["content"])

    def _set(self, rest: str) -> None:
        if not rest:
            shown = (f"{name} {self._settings[option]}" for name, (option, _) in SETTINGS.items())
            self._screen.warn(", ".join(shown))
            return
        option, value = parse_setting(rest)
        changed = self._settings | {option: value}
        api.turn_options(changed)  # refuses what it would refuse then
        self._settings = changed


def summary(generation: api.Generation) -> str:
    """An answer's rate, hit rate and what bounds it, in one line."""
    stats = generation.stats
    phase = stats.decode if stats.decode.tokens else stats.prompt
    count = len(generation.tokens)
    parts = [f"{count} {'token' if count == 1 else 'tokens'}"]
    if generation.finish_reason == "interrupted":
        parts.append("interrupted")
    elif generation.finish_reason == "length":
        parts.append("cut off")
    if phase.tokens_per_second is not None:
        parts.append(f"{phase.tokens_per_second:.2f} tokens/s")
    if phase.hit_rate is not None:
        parts.append(f"hit rate {phase.hit_rate:.1%}")
    if phase.experts.used:
        parts.append(f"of experts {phase.experts.hit_rate:.1%}")
    return ", ".join([*parts, f"bound by {stats.bound_by}"])


def _named(text: str) -> Path:
    if not text:
        raise UsageError("no file was named", hint="write it behind the command")
    return Path(text).expanduser()
