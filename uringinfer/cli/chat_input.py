"""Where a chat's turns come from: a terminal with editing and history, a plain one, or a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from uringinfer.api import UsageError, state_directory
from uringinfer.cli.chat_commands import COMMANDS, SETTINGS
from uringinfer.cli.chat_screen import Screen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

PROMPT = "> "


class Input(Protocol):
    """Gives one turn at a time."""

    can_edit: bool
    """Whether a text can be offered to be changed."""

    def ask(self, offered: str = "") -> str:
        """The next turn. Raises EOFError if none comes, KeyboardInterrupt for Ctrl-C."""
        ...


def open_input(screen: Screen) -> Input:
    """The input of this process."""
    if not sys.stdin.isatty():
        return LineInput(echo=False)
    if screen.is_dumb:
        return LineInput(echo=True)
    return TerminalInput()


class LineInput:
    """One turn a line, from a pipe or from a terminal that cannot do more."""

    can_edit = False

    def __init__(self, *, echo: bool) -> None:
        self._prompt = PROMPT if echo else ""

    def ask(self, offered: str = "") -> str:
        sys.stdout.write(self._prompt)
        sys.stdout.flush()
        try:
            line = sys.stdin.readline()
        except UnicodeDecodeError as error:
            raise UsageError(f"a line is not UTF-8 (byte {error.start})", hint="convert it") from None
        except OSError as error:
            raise UsageError(f"cannot read stdin: {error.strerror}", hint="give it a pipe") from None
        if not line:
            raise EOFError
        return line.removesuffix("\n")


class TerminalInput:
    """Editing, several lines, completion of commands, and a history over sessions."""

    can_edit = True

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession  # late: only a terminal needs it

        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation="  ",
            history=_history(),
            key_bindings=_keys(),
            completer=_completer(),
            complete_while_typing=False,
        )

    def ask(self, offered: str = "") -> str:
        return self._session.prompt(default=offered)


def _history() -> History:
    """Kept on the drive for the next session, or in memory where that cannot be."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    directory = state_directory()
    path = directory / "chat_history"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _completer() -> Completer:
    """Completes commands, their settings and files, and nothing in what is said."""
    from prompt_toolkit.completion import Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document

    files = PathCompleter(expanduser=True)

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: Any) -> Iterable[Completion]:
            text = document.text_before_cursor
            command, blank, rest = text.partition(" ")
            if not text.startswith("/") or "\n" in text:
                return
            if blank and command in ("/save", "/load"):
                yield from files.get_completions(Document(rest, len(rest)), complete_event)
                return
            known = [f"/{name} " for name in COMMANDS] if not blank else []
            if command == "/set" and blank:
                known = [f"{name} " for name in SETTINGS]
            written = rest if blank else command
            for word in known:
                if word.startswith(written):
                    yield Completion(word, start_position=-len(written))

    return Commands()


def _keys() -> KeyBindings:
    """Enter sends; Alt-Enter begins a new line."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: Any) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return keys
