"""Text that a command takes from an option, from a file or from stdin."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path
from typing import BinaryIO

from uringinfer.api import BudgetError, Machine, UsageError, format_size

MAX_BYTES = 256 << 20
"""Of a text: far more than any model takes, and an end to a device that has none."""
_BLOCK = 1 << 16
_SMALL = 1 << 20
"""What the plan of a run refuses, if it must, with the model's floor."""


def read_text(
    text: str | None,
    file: Path | None,
    dash: str | None,
    *,
    what: str = "the prompt",
    budget: int | None = None,
) -> str | None:
    """The text from the one source that was given, None if none was: itself, a UTF-8 file, or "-" for stdin.

    Raises UsageError for more than one source, and for a text that cannot be read, is longer than `MAX_BYTES`
    or is not UTF-8; BudgetError for one that does not fit into `budget`, or into what this process may use.
    """
    if dash not in (None, "-"):
        raise UsageError(f"unexpected argument '{dash}'", hint="give text with -p, or - to read stdin")
    if sum(source is not None for source in (text, file, dash)) > 1:
        raise UsageError(f"{what} was given more than once", hint="choose one of -p, -f and -")
    if text is not None:
        return text
    if dash is not None or str(file) == "-":
        return _decoded(sys.stdin.buffer, "stdin", _Room(budget))
    if file is None:
        return None
    try:
        with file.open("rb") as stream:
            room = _Room(budget)
            room.take(2 * os.fstat(stream.fileno()).st_size, str(file))  # the size of a pipe is 0
            return _decoded(stream, str(file), room)
    except OSError as error:
        raise UsageError(f"cannot read {what} from {file}: {error.strerror}") from None


class _Room:
    """What this process may still take of a budget, and of what the machine grants."""

    def __init__(self, budget: int | None) -> None:
        machine = Machine.read()
        self._limit = machine.usable_bytes if budget is None else min(budget, machine.usable_bytes)
        self._resident = machine.resident

    def take(self, nbytes: int, source: str) -> None:
        """Raises BudgetError if `nbytes` for the text of `source` do not fit."""
        needed = self._resident + nbytes
        if nbytes > _SMALL and needed > self._limit:
            raise BudgetError(
                f"{source} needs at least {format_size(nbytes)} of memory beside"
                f" {format_size(self._resident)} in use, and there are {format_size(self._limit)}"
                f" ({self._limit} bytes)",
                floor=needed,
                budget=self._limit,
                hint="give less text, or a larger --budget",
            )


def _decoded(stream: BinaryIO, source: str, room: _Room) -> str:
    """The text of `stream`, block by block: its bytes are never in memory beside it."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    blocks: list[str] = []
    read = held = 0
    while True:
        try:
            data = stream.read(_BLOCK)
        except OSError as error:  # a closed stdin, a directory in the place of a file
            raise UsageError(
                f"cannot read {source}: {error.strerror}", hint="give the text with -p"
            ) from None
        read += len(data)
        if read > MAX_BYTES:
            raise UsageError(f"{source} is longer than {format_size(MAX_BYTES)}", hint="give less text")
        try:
            block = decode(data, final=not data)
        except UnicodeDecodeError as error:
            before = read - len(data) - (len(error.object) - len(data))
            raise UsageError(
                f"{source} is not UTF-8 (byte {before + error.start})", hint="convert it"
            ) from None
        blocks.append(block)
        held += sys.getsizeof(block)
        room.take(2 * held, source)  # for a moment the blocks and the whole are both there
        if not data:
            return "".join(blocks)
