"""Calls into libraries written in Rust, which panic over some inputs: they write a report to stderr and raise
what is no Exception.

A pattern that explodes on a text is such an input. The caller gets an ordinary error, and the report is left
out; whatever else was written to stderr meanwhile is written there afterwards.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from uringinfer.errors import IntegrityError

_PANIC = "PanicException"
_STDERR = 2
_taken = threading.Lock()


@contextmanager
def panics_are_errors(what: str) -> Iterator[None]:
    """Inside the block a panic is an IntegrityError that says that `what` gave up, and why."""
    with _taken, _stderr_held_back() as held:
        try:
            yield
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            os.ftruncate(held, 0)
            reason = " ".join(str(error).split())
            raise IntegrityError(f"{what} gave up over this text ({reason})", hint="copy it anew") from None


@contextmanager
def _stderr_held_back() -> Iterator[int]:
    """Inside the block stderr goes into a file in memory, the given descriptor; then it is written."""
    try:
        stderr = os.dup(_STDERR)
    except OSError:  # closed: whatever is written is lost anyway
        stderr = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    held = os.memfd_create("stderr")
    os.dup2(held, _STDERR)
    try:
        yield held
    finally:
        os.dup2(stderr, _STDERR)
        with contextlib.suppress(OSError):
            os.write(stderr, os.pread(held, os.fstat(held).st_size, 0))
        os.close(held)
        os.close(stderr)
