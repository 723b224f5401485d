"""What the command line says, and exits with, when something goes wrong: one line and a code for everything.

The typed errors say themselves what they mean. The others come from the machine or from libraries, at any
place: memory that runs out, a file that is nested too deeply, a number that fits nothing. What is left is a
mistake in this program, and is called one.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from uringinfer.api import EnvironmentError_, IntegrityError, UringinferError, UsageError

PROGRAM = "uringinfer"
_INTERNAL = 1


@dataclass(frozen=True, slots=True)
class Failure:
    """`line` goes to stderr. `is_known`: that is all there is to say; a traceback would add nothing."""

    line: str
    code: int
    is_known: bool = False


def failure_of(error: BaseException) -> Failure:
    """What an error that nobody caught means to who called the command."""
    match error:
        case UringinferError():
            return Failure(_line(str(error)), error.exit_code)
        case click.ClickException():
            context = getattr(error, "ctx", None)
            path = context.command_path if context else PROGRAM
            message = error.format_message().rstrip(".")
            return Failure(_line(f"{message}; see '{path} -h'"), error.exit_code, is_known=True)
        case click.Abort() | KeyboardInterrupt():
            return Failure(f"{PROGRAM}: interrupted", 130, is_known=True)
        case MemoryError():
            # numpy says how much it wanted, the interpreter nothing
            what = f" ({error})" if str(error) else ""
            return _machine(f"memory ran out{what}; give a smaller --budget, or free some memory")
        case RecursionError():
            return Failure(
                _line("a file is nested too deeply to be read; copy it anew"), IntegrityError.exit_code
            )
        case UnicodeError():
            return Failure(_line(f"a text is not valid Unicode ({error})"), IntegrityError.exit_code)
        case OverflowError():
            return Failure(_line(f"a number is too large ({error})"), UsageError.exit_code)
        case OSError():
            # what the machine refused where no room of the package knew more about it: a directory without
            # permission, a full drive
            what = f"cannot use {error.filename}: " if error.filename else ""
            return _machine(f"{what}{error.strerror or error}")
        case Exception():
            return _mistake(error)
    # a library written in Rust that panics raises what is no Exception
    return Failure(
        _line(f"a library gave up over its input ({type(error).__name__}: {error})"),
        IntegrityError.exit_code,
    )


def _machine(message: str) -> Failure:
    return Failure(_line(message), EnvironmentError_.exit_code)


def _mistake(error: Exception) -> Failure:
    return Failure(
        _line(
            f"a mistake in this program ({type(error).__name__}: {error}); please report it with what"
            f" '{PROGRAM} --debug' shows"
        ),
        _INTERNAL,
    )


def _line(message: str) -> str:
    """One line, whatever is in it: a path may hold line ends and bytes that are no text."""
    words = " ".join(message.encode("utf-8", "backslashreplace").decode().split())
    return f"{PROGRAM}: {words}"
