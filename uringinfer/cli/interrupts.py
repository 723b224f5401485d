"""Ctrl-C: before a command begins it leaves at once; while text is generated, the first one ends the turn and
the second one quits; in between it is a KeyboardInterrupt."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def leave_at_once(number: int, frame: FrameType | None) -> None:
    """What SIGINT does during start-up and exit, when nothing is begun and modules are half imported: an
    exception could come out anywhere, or get lost in a library."""
    os.write(2, b"uringinfer: interrupted\n")
    os._exit(130)


def end_of_start_up() -> None:
    """From now on SIGINT raises KeyboardInterrupt, if it left at once until now."""
    if signal.getsignal(signal.SIGINT) is leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def first_interrupt(handle: Callable[[], None]) -> Iterator[None]:
    """Inside the block, the first SIGINT calls `handle`; the next one raises KeyboardInterrupt."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handle()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
