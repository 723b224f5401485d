"""The one hierarchy of errors.

Every error carries what a person needs in one line: what went wrong, which thing, the numbers, and what to
do about it (`hint`). The command line turns an error into that line and into its exit code; nothing else
catches these.
"""

from __future__ import annotations

from typing import Any

_LONGEST = 1000
"""Characters of a message."""


class UringinferError(Exception):
    """Base of every error this package raises on purpose.

    `str(error)` is the message with the hint, on one line, cut in its middle where a hostile file's names
    make it longer than anybody reads. `exit_code` is what the command line returns.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = _shortened(message)
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # an error travels between processes whole; the default would call `__init__` without its keywords
        return _restore, (type(self), self.args, self.__dict__)


def _shortened(message: str) -> str:
    if len(message) <= _LONGEST:
        return message
    half = _LONGEST // 2
    return f"{message[:half]} ... {message[-half:]}"


def _restore(kind: type[UringinferError], args: tuple[Any, ...], state: dict[str, Any]) -> UringinferError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class UsageError(UringinferError):
    """The request itself is wrong: an option's value, a missing path, options that exclude each other."""

    exit_code = 2


class EnvironmentError_(UringinferError):
    """The machine lacks something that was asked for: direct I/O, io_uring, space, permission."""

    exit_code = 3


class IntegrityError(UringinferError):
    """Bytes are not what they should be: a checksum, a size, a header, a read that failed."""

    exit_code = 4


class BudgetError(UringinferError):
    """The memory budget is below what the model needs at least; `floor` and `budget` are bytes."""

    exit_code = 5

    def __init__(self, message: str, *, floor: int, budget: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.floor = floor
        self.budget = budget


class UnsupportedModelError(UringinferError):
    """The checkpoint's architecture, dtype or option is not one this package runs."""

    exit_code = 6


class ResidencyError(UringinferError):
    """Weights were asked for out of turn, or used after they were given back: a mistake in a model's code."""


class Interrupted(UringinferError):
    """Someone asked the engine to stop (Ctrl-C); raised between two segments."""

    exit_code = 130
