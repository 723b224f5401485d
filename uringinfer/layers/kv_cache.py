"""Keys and values of one attention layer: of every position fed, or of those that its window still shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from uringinfer.kernels import Kernels
from uringinfer.layers.weights import Floats

MOVED_ROWS = 64
"""Rows that move through a copy at once."""


class KeyValueCache:
    """`keys` float32 [G, rows, D] and `values` float32 [G, rows, Dv], allocated once.

    Without a window a position's row is its number, and nothing moves when the conversation grows. With a
    `window`, positions that no later one can see make room: there are rows for two windows, and when they are
    full, the last window's rows move to the front. Attention counts its blocks from the first position that
    it sees, so which row that is does not show in a bit.
    """

    def __init__(self, heads: int, context: int, key_dim: int, value_dim: int, window: int = 0) -> None:
        self._rows = self.rows_for(context, window)
        self._window = window
        self._forgets = self._rows < context
        self._first = 0
        """The position in row 0."""
        self.keys: Floats = np.zeros((heads, self._rows, key_dim), np.float32)
        self.values: Floats = np.zeros((heads, self._rows, value_dim), np.float32)

    @staticmethod
    def rows_for(context: int, window: int = 0) -> int:
        """Rows of a cache for so many positions; `window` 0 keeps all of them."""
        return min(context, 2 * window) if window else context

    @staticmethod
    def bytes_for(heads: int, context: int, key_dim: int, value_dim: int, window: int = 0) -> int:
        """Bytes of a cache of these sizes."""
        return 4 * heads * KeyValueCache.rows_for(context, window) * (key_dim + value_dim)

    @staticmethod
    def snapshot_bytes_for(heads: int, context: int, key_dim: int, value_dim: int, window: int = 0) -> int:
        """Bytes that a snapshot of such a cache keeps at most."""
        kept = window - 1 if KeyValueCache.rows_for(context, window) < context else 0
        return 4 * heads * kept * (key_dim + value_dim)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def pieces(self, count: int) -> Iterator[slice]:
        """Cuts `count` new positions into what can be written at once: a window's length, or all."""
        most = self._window or count
        return (slice(start, min(start + most, count)) for start in range(0, count, most))

    def write(self, start: int, keys: Floats, values: Floats) -> int:
        """Stores keys [T, G, D] and values [T, G, Dv] of positions start .. start + T - 1, one of `pieces`;
        the row of the first."""
        if start + len(keys) - self._first > self._rows:
            self._make_room(start)
        row = start - self._first
        self.keys[:, row : row + len(keys)] = keys.transpose(1, 0, 2)
        self.values[:, row : row + len(keys)] = values.transpose(1, 0, 2)
        return row

    def _make_room(self, start: int) -> None:
        """Moves what position `start` still sees to the front."""
        kept = self._window - 1
        row = start - self._first - kept
        for array in (self.keys, self.values):
            for to in range(0, kept, MOVED_ROWS):
                count = min(MOVED_ROWS, kept - to)
                array[:, to : to + count] = array[:, row + to : row + to + count].copy()
        self._first = start - kept

    @property
    def most_on_trial(self) -> int | None:
        """Tokens fed at once of which some can be taken back; None is any number. A longer piece than a
        window pushes out what a position before its end sees."""
        return self._window or None

    def take_back(self, length: int, kernels: Kernels) -> None:
        """Returns to `length` positions after a trial: what was written behind them is not looked at."""

    def can_rewind(self, length: int) -> bool:
        """Whether what position `length` sees is still there, whatever was written behind it."""
        return self._first <= max(0, length - self._window + 1)

    @property
    def forgets(self) -> bool:
        """Whether positions make room for later ones, so that going back may need a snapshot."""
        return self._forgets

    def begin_at(self, length: int) -> None:
        """Makes `arrays(length)` the place to fill with what a snapshot kept, whatever is in the cache."""
        self._first = max(0, length - self._window + 1) if self._window else 0

    def arrays(self, length: int) -> dict[str, Floats]:
        """What `length` positions leave in the two arrays, for a saved session: those that the next one sees.

        An empty cache takes its place behind them, to be filled."""
        kept = min(length, self._window - 1) if self._window else length
        if length - self._first > self._rows:
            self._first = length - kept
        rows = slice(length - kept - self._first, length - self._first)
        return {"keys": self.keys[:, rows], "values": self.values[:, rows]}
