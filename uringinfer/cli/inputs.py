"""Text that a command takes from an option, from a file or from stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from uringinfer.errors import UsageError


def read_text(
    text: str | None, file: Path | None, dash: str | None, *, what: str = "the prompt"
) -> str | None:
    """The text from the one source that was given, None if none was: itself, a UTF-8 file, or "-" for stdin.

    Raises UsageError for more than one source and for a file that cannot be read.
    """
    if dash not in (None, "-"):
        raise UsageError(f"unexpected argument '{dash}'", hint="give text with -p, or - to read stdin")
    if sum(source is not None for source in (text, file, dash)) > 1:
        raise UsageError(f"{what} was given more than once", hint="choose one of -p, -f and -")
    if text is not None:
        return text
    if dash is not None or str(file) == "-":
        return _decode(sys.stdin.buffer.read(), "stdin")
    if file is None:
        return None
    try:
        return _decode(file.read_bytes(), str(file))
    except OSError as error:
        raise UsageError(f"cannot read {what} from {file}: {error.strerror}") from None


def _decode(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 (byte {error.start})", hint="convert it") from None
