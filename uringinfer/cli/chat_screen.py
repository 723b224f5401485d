"""What a chat writes: answers to stdout, dimmed reasoning, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click

from uringinfer import api

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_SHOWN = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
"""Control characters, which could move a terminal's cursor or worse, as pictures of themselves."""


class Screen:
    """Colours only on a terminal that takes them and where NO_COLOR does not forbid them."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.is_terminal = sys.stdout.isatty()
        self.is_dumb = not self.is_terminal or os.environ.get("TERM", "dumb") == "dumb"
        self._has_colours = not self.is_dumb and not os.environ.get("NO_COLOR")

    def show(self, pieces: Iterable[api.Piece]) -> None:
        """The answer as it comes; reasoning dim, or between <think> and </think> where nothing can be."""
        kind = "answer"
        for piece in pieces:
            if not piece.text:
                continue
            if (piece.kind == "reasoning") != (kind == "reasoning"):
                self._write(self._mark(begins=piece.kind == "reasoning"))
            kind = piece.kind
            self._write(piece.text.translate(_SHOWN) if self.is_terminal else piece.text)
        if kind == "reasoning" and self._has_colours:
            self._write(_PLAIN)
        self._write("\n")

    def say(self, line: str) -> None:
        """A line beside the conversation."""
        if not self.quiet:
            self.warn(line)

    def warn(self, line: str) -> None:
        """A line that is said even if the chat is quiet."""
        dim = self._has_colours and sys.stderr.isatty()
        click.echo(f"{_DIM}{line}{_PLAIN}" if dim else line, err=True)

    def _mark(self, *, begins: bool) -> str:
        if self._has_colours:
            return _DIM if begins else f"{_PLAIN}\n\n"
        return "<think>\n" if begins else "\n</think>\n\n"

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
