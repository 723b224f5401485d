"""Ctrl-C while text is generated: the first one ends the turn, the second one quits."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
