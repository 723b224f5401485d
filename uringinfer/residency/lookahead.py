"""Guesses about the next layer's experts, how good they turn out to be, and which of them to read.

The next layer's router, applied to this layer's hidden state, names experts before it is that layer's turn.
The real router still decides. A right guess moves a read to a time when the drive has nothing to do; a wrong
one takes an expert's slot and may hold up what is demanded next. So how often each rank (best guess, second
best, ...) was right lately is kept, and only ranks that are right more often than not are read. All are
judged, read or not: a rank that improves is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

WORTH_READING = 0.5
"""Share of right guesses from which on a rank is read: a wrong read costs about what a right one saves."""

_MEMORY = 1 / 32
"""How much the latest guess counts in a rank's share."""


class Lookahead:
    """The open guess, and the shares of `ranks` ranks. `demanded` counts experts of turns that had been
    guessed about, `named` those that the guess had named: named / demanded is the recall."""

    def __init__(self, ranks: int) -> None:
        self.demanded = 0
        self.named = 0
        self._right = [1.0] * ranks
        """Share of each rank's guesses that were right, of late; a new rank is trusted."""
        self._layer = -1
        self._experts: tuple[int, ...] = ()

    def guess(self, layer: int, experts: Sequence[int]) -> list[int]:
        """`layer`, whose turn is next, is guessed to use `experts`, the likeliest first -> those worth
        reading."""
        self._layer, self._experts = layer, tuple(experts)
        return [expert for expert, right in zip(experts, self._right, strict=False) if right >= WORTH_READING]

    def judge(self, layer: int, chosen: Collection[int]) -> None:
        """It is the turn of `layer`, and it uses `chosen`; closes the guess."""
        if layer == self._layer and self._experts:
            self.demanded += len(chosen)
            for rank, expert in enumerate(self._experts):
                is_right = expert in chosen
                self.named += is_right
                self._right[rank] += _MEMORY * (is_right - self._right[rank])
        self._layer, self._experts = -1, ()
