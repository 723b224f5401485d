"""Text that a command takes from an option, from a file or from stdin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from uringinfer.api import UsageError, format_size

MAX_BYTES = 256 << 20
"""Of a text: far more than any model takes, and an end to a device that has none."""


def read_text(
    text: str | None, file: Path | None, dash: str | None, *, what: str = "the prompt"
) -> str | None:
    """The text from the one source that was given, None if none was: itself, a UTF-8 file, or "-" for stdin.

    Raises UsageError for more than one source, and for a text that cannot be read, is longer than `MAX_BYTES`
    or is not UTF-8.
    """
    if dash not in (None, "-"):
        raise UsageError(f"unexpected argument '{dash}'", hint="give text with -p, or - to read stdin")
    if sum(source is not None for source in (text, file, dash)) > 1:
        raise UsageError(f"{what} was given more than once", hint="choose one of -p, -f and -")
    if text is not None:
        return text
    if dash is not None or str(file) == "-":
        return _decoded(sys.stdin.buffer, "stdin")
    if file is None:
        return None
    try:
        with file.open("rb") as stream:
            return _decoded(stream, str(file))
    except OSError as error:
        raise UsageError(f"cannot read {what} from {file}: {error.strerror}") from None


def _decoded(stream: BinaryIO, source: str) -> str:
    try:
        data = stream.read(MAX_BYTES + 1)
    except OSError as error:  # a closed stdin, a directory in the place of a file
        raise UsageError(f"cannot read {source}: {error.strerror}", hint="give the text with -p") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{source} is longer than {format_size(MAX_BYTES)}", hint="give less text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 (byte {error.start})", hint="convert it") from None
