"""Who may use a trunk: the process that made it, one pass at a time, until it is closed.

Memory and files are given back between passes alone. A reader on io_uring belongs to the thread that made it,
so where another thread wants to close, the pass that runs is stopped and its thread closes at its end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from uringinfer.errors import ResidencyError, UsageError

PATIENCE_SECONDS = 10.0
"""How long another thread waits for the owner to close."""


class Tenure:
    """Passes and the one closing of what `begin` guards. `close` gives everything back, `stop` makes the pass
    that runs raise soon. `any_thread` may close if no pass runs; else that thread alone which made this."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.any_thread = False
        self._stop = stop
        self._pid = os.getpid()
        self._owner = threading.get_ident()
        self._lock = threading.Lock()
        self._in_pass = False
        self._closing: Callable[[], None] | None = None
        self._gives_back = False
        self._closed = threading.Event()

    def check(self) -> None:
        """Raises UsageError in a process that was forked off, and after `close`."""
        if os.getpid() != self._pid:
            raise UsageError(
                f"the model was loaded in process {self._pid}, and process {os.getpid()} was forked off it",
                hint="load it in the process that uses it, after the fork",
            )
        if self._closing is not None:
            raise UsageError("the engine is closed", hint="load the model again")

    @contextmanager
    def hold(self) -> Iterator[None]:
        """One pass. Raises as `check` does, ResidencyError for a pass inside another one."""
        try:
            with self._lock:
                self.check()
                if self._in_pass:
                    raise ResidencyError("a pass was started inside another one")
                self._in_pass = True
        except UsageError:
            self._settle()
            raise
        try:
            yield
        finally:
            with self._lock:
                self._in_pass = False
            self._settle()

    def close(self, give_back: Callable[[], None]) -> None:
        """Calls `give_back` once: now, or in the owner's thread when its pass has stopped, and returns then.
        In a forked process nothing is done: what is there belongs to the parent.

        Raises UsageError if that thread is not heard of.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._closing is None:
                self._closing = give_back
            must_wait = self._in_pass or not (self.any_thread or threading.get_ident() == self._owner)
            if self._in_pass:
                self._stop()
        if not must_wait:
            self._settle(anywhere=True)
        elif threading.get_ident() != self._owner and not self._closed.wait(PATIENCE_SECONDS):
            raise UsageError(
                "the engine is closed by another thread than that which loaded it and which is not using it",
                hint="close it in the thread that loaded it",
            )

    def _settle(self, *, anywhere: bool = False) -> None:
        """Gives everything back if that is asked for and this is the place."""
        if not anywhere and threading.get_ident() != self._owner and not self.any_thread:
            return
        with self._lock:
            give_back = self._closing
            if give_back is None or self._in_pass or self._gives_back:
                return
            self._gives_back = True
        try:
            give_back()
        finally:
            self._closed.set()
