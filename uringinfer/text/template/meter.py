"""What one rendering may take: processor time, and memory for everything it makes.

All values that a rendering makes are counted, those dropped again too: what is alive at any moment is less.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

DEFAULT_SECONDS = 2.0
MAX_INTEGER_BITS = 16_384
_TEXT_NBYTES = 64
"""Of a short text or a number in a list, with its place there."""


class TemplateError(Exception):
    """A template cannot go on: what it does is wrong, refused, or too much."""


class LimitError(TemplateError):
    """A template wants more time or memory than it is given."""


class Meter:
    """Counts what one rendering takes; each method raises LimitError once that is too much."""

    def __init__(
        self, nbytes: int, seconds: float = DEFAULT_SECONDS, clock: Callable[[], float] = time.thread_time
    ) -> None:
        """`clock` gives the seconds that this thread has run: a busy machine makes no template too slow."""
        self._nbytes = self._nbytes_left = nbytes
        self._seconds = seconds
        self._clock = clock
        self._deadline = clock() + seconds
        self._steps = 0

    def step(self) -> None:
        """One node of the template was run."""
        self._steps += 1
        if not self._steps & 0xFF and self._clock() > self._deadline:
            raise LimitError(f"it takes more than {self._seconds:g} s")

    def pay(self, nbytes: int) -> None:
        """`nbytes` are going to be allocated."""
        self._nbytes_left -= nbytes
        if self._nbytes_left < 0:
            raise LimitError(f"it takes more than {self._nbytes >> 20} MiB of memory")

    def pay_text(self, length: int, *parts: str) -> None:
        """A text of `length` characters made of `parts` is going to be made."""
        self.pay(length * max((_width(part) for part in parts), default=1) + _TEXT_NBYTES)

    def pay_items(self, count: int) -> None:
        """`count` short texts or places in a list are going to be made."""
        self.pay(count * _TEXT_NBYTES)

    def made(self, value: Any) -> Any:
        """`value`, which was made and is no larger than what it was made of, paid for afterwards."""
        self.pay(sys.getsizeof(value))
        return value

    def weigh(self, value: Any) -> tuple[int, int]:
        """How many values `value` holds and how deep they nest; pays for writing all of them out once.

        A value that stands in two places counts twice, as it does for whoever walks over it.
        """
        count, deepest = 0, 0
        waiting = [(value, 1)]
        while waiting:
            entry, depth = waiting.pop()
            count += 1
            deepest = max(deepest, depth)
            self.step()
            if isinstance(entry, str):
                self.pay(2 * len(entry) * _width(entry) + 8)
            elif isinstance(entry, dict):
                self.pay(24 * len(entry))
                for pair in entry.items():
                    waiting += [(part, depth + 1) for part in pair]
            elif isinstance(entry, list | tuple):
                self.pay(24 * len(entry))
                waiting += [(part, depth + 1) for part in entry]
            else:
                self.pay(16)
        return count, deepest


def check_integer(bits: int) -> None:
    """Raises LimitError for an integer of more than `MAX_INTEGER_BITS`."""
    if bits > MAX_INTEGER_BITS:
        raise LimitError("it makes a number of thousands of digits")


def _width(text: str) -> int:
    """Bytes that Python takes for a character of `text`, at most."""
    return 1 if text.isascii() else 4
