"""Interrupts the main thread when it has got somewhere, not after a time: a busy machine changes nothing."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType

import pytest

MAIN = threading.main_thread().ident
_STEP_SECONDS = 0.001


def main_is_in(*functions: Callable[..., object]) -> bool:
    """Whether the main thread is executing all of `functions`: each of them, or something that it called."""
    assert MAIN is not None
    left = {function.__code__ for function in functions if isinstance(function, FunctionType)}
    assert len(left) == len(functions)
    frame: FrameType | None = sys._current_frames()[MAIN]
    while frame is not None:
        left.discard(frame.f_code)
        frame = frame.f_back
    return not left


@contextlib.contextmanager
def meanwhile(condition: Callable[[], bool], action: Callable[[], object]) -> Iterator[None]:
    """Another thread calls `action` as soon as `condition()` is true, while the body runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if condition():
                action()
                return
            time.sleep(_STEP_SECONDS)

    watcher = threading.Thread(target=watch, name="watcher")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@contextlib.contextmanager
def interrupted_when(condition: Callable[[], bool]) -> Iterator[None]:
    """Expects the body to end by the KeyboardInterrupt of a Ctrl-C that comes once `condition()` is true.

    The signal is sent until it is heard: one that comes just before a system call that sleeps is not.
    """
    heard = threading.Event()

    def hear(number: int, frame: FrameType | None) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    def knock() -> None:
        assert MAIN is not None
        while not heard.is_set():
            signal.pthread_kill(MAIN, signal.SIGINT)
            time.sleep(_STEP_SECONDS)

    before = signal.signal(signal.SIGINT, hear)
    try:
        with pytest.raises(KeyboardInterrupt), meanwhile(condition, knock):
            yield
    finally:
        signal.signal(signal.SIGINT, before)
