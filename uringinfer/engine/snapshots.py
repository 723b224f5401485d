"""Places in a conversation to go back to, for state that positions overwrite: recurrent states, windows.

A snapshot is a copy of the arrays that forget, with the logits behind them; what keeps a row for every
position needs none. There are at most so many as the budget was planned for, the latest ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uringinfer.models.base import Floats, State


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """What a state that forgets was at `length` positions; `logits` [vocab] are those behind them."""

    length: int
    arrays: Mapping[str, NDArray[Any]]
    logits: Floats


class Snapshots:
    """The snapshots of one conversation, `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: list[StateSnapshot] = []

    @property
    def lengths(self) -> tuple[int, ...]:
        """Where they were taken, in order."""
        return tuple(snapshot.length for snapshot in self._taken)

    def take(self, state: State, logits: Floats) -> None:
        """Keeps what `state` is now; the oldest makes room. Does nothing for a state that forgets nothing."""
        if not self._most or not state.forgets or state.length in self.lengths:
            return
        del self._taken[: len(self._taken) - self._most + 1]  # first, so that there are never more
        arrays = {name: array.copy() for name, array in state.arrays(forgotten=True).items()}
        self._taken.append(StateSnapshot(state.length, arrays, logits.copy()))

    def at(self, length: int) -> StateSnapshot | None:
        """The snapshot of exactly `length` positions, if there is one."""
        return next((snapshot for snapshot in self._taken if snapshot.length == length), None)

    def restore(self, state: State, length: int) -> None:
        """Takes `state` back to the nearest snapshot at or before `length`, or to its beginning."""
        self.forget_behind(length)
        nearest = self._taken[-1] if self._taken else None
        state.begin_at(0 if nearest is None else nearest.length)
        if nearest is not None:
            for name, array in state.arrays(forgotten=True).items():
                np.copyto(array, nearest.arrays[name])

    def forget_behind(self, length: int) -> None:
        """Drops those behind `length`, which the conversation has left."""
        self._taken = [snapshot for snapshot in self._taken if snapshot.length <= length]
