"""Guesses about the next layer's experts, how good they turn out to be, and which of them to read.

The next layer's router, applied to this layer's hidden state, names experts before it is that layer's turn:
first with this layer's input, and once more, better, with its output. The real router still decides. A right
guess moves a read to a time when the drive has nothing to do; a wrong one takes an expert's slot and may hold
up what is demanded next. So how often each rank (best guess, second best, ...) of either guess was right
lately is kept, and only ranks that are right often enough are read. All are judged, read or not: a rank that
improves is read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

WORTH_READING = 0.5
"""Share of right guesses from which on a rank is read: a wrong read costs about what a right one saves."""

WORTH_READING_EARLY = 0.7
"""The same where a late guess follows: it will name what is right once more, in time for most of the read."""

_MEMORY = 1 / 32
"""How much the latest guess counts in a rank's share."""


class Lookahead:
    """The open guesses, and the shares of their ranks. `demanded` counts experts of turns that had been
    guessed about, `named` those that the first guess had named: named / demanded is the recall."""

    def __init__(self) -> None:
        self.demanded = 0
        self.named = 0
        self._right: defaultdict[tuple[bool, int], float] = defaultdict(lambda: 1.0)
        """Share of guesses that were right lately, by (late, rank); a new rank is trusted."""
        self._layer = -1
        self._guesses: dict[bool, tuple[int, ...]] = {}
        self._has_late = False

    def guess(self, layer: int, experts: Sequence[int], *, late: bool = False) -> list[int]:
        """`layer`, whose turn is next, is guessed to use `experts`, the likeliest first -> those worth
        reading."""
        if not late:
            self._guesses.clear()
        self._layer = layer
        self._guesses[late] = tuple(experts)
        self._has_late = self._has_late or late
        least = WORTH_READING if late or not self._has_late else WORTH_READING_EARLY
        return [expert for rank, expert in enumerate(experts) if self._right[late, rank] >= least]

    def judge(self, layer: int, chosen: Collection[int]) -> None:
        """It is the turn of `layer`, and it uses `chosen`; closes the guesses."""
        if layer == self._layer:
            for late, experts in self._guesses.items():
                right = [expert in chosen for expert in experts]
                for rank, is_right in enumerate(right):
                    self._right[late, rank] += _MEMORY * (is_right - self._right[late, rank])
                if not late:
                    self.demanded += len(chosen)
                    self.named += sum(right)
        self._layer = -1
        self._guesses.clear()
