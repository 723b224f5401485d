"""Guesses about the next layer's experts, and how good they turn out to be.

The next layer's router, applied to this layer's hidden state, names experts before it is that layer's turn.
The real router still decides; what this keeps is which guess is open and how much of each turn was guessed.
"""

from __future__ import annotations

from collections.abc import Collection


class Lookahead:
    """The open guess. `demanded` counts experts of turns that had been guessed about, `named` those that the
    guess had named: named / demanded is the recall."""

    def __init__(self) -> None:
        self.demanded = 0
        self.named = 0
        self._layer = -1
        self._experts: tuple[int, ...] = ()

    def guess(self, layer: int, experts: Collection[int]) -> None:
        """`layer`, whose turn is next, is guessed to use `experts`."""
        self._layer, self._experts = layer, tuple(experts)

    def judge(self, layer: int, chosen: Collection[int]) -> None:
        """It is the turn of `layer`, and it uses `chosen`; closes the guess."""
        if layer == self._layer and self._experts:
            self.demanded += len(chosen)
            self.named += sum(expert in chosen for expert in self._experts)
        self._layer, self._experts = -1, ()
