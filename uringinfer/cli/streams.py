"""stdin, stdout and stderr, whatever the shell made of them: closed, full, a pipe whose reader went away.

A stream that was closed gets a descriptor that refuses, so that no file of a model is opened under its number
and written to by whoever takes it for the terminal. What stdout refuses is told; what stderr refuses is lost:
there is nowhere left to tell it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

from uringinfer.api import EnvironmentError_


class StdoutRefused(EnvironmentError_):
    """stdout did not take what was written to it: a file on a full drive, say."""


class _Stdout:
    """stdout, where a refusal says that it was stdout: the machine's error names no file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with _told_of_stdout():
            return self._stream.write(text)

    def flush(self) -> None:
        with _told_of_stdout():
            self._stream.flush()


class _Stderr:
    """stderr, where a refusal changes nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


@contextmanager
def _told_of_stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # no refusal: the reader had enough
    except OSError as error:
        raise StdoutRefused(f"cannot write to stdout: {error.strerror}") from error
    except UnicodeEncodeError as error:
        raise StdoutRefused(
            f"stdout cannot show {error.object[error.start : error.end]!a} in {error.encoding}",
            hint="set PYTHONUTF8=1",
        ) from error


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Inside the block all three streams are there."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # the wrong way round: reading stdin and writing to stdout fail as the closed stream would
            _put_null_at(number, os.O_RDONLY if name == "stdout" else os.O_WRONLY)
            stream = open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
    with redirect_stdout(_Stdout(sys.stdout)), redirect_stderr(_Stderr(sys.stderr)):
        yield


def _put_null_at(number: int, flags: int) -> None:
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)


def give_up_stdout() -> None:
    """Keeps the exit handlers from writing again what stdout did not take."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
