"""Keys and values of one attention layer, for every position fed so far."""

from __future__ import annotations

import numpy as np

from uringinfer.layers.weights import Floats


class KeyValueCache:
    """`keys` float32 [G, context, D] and `values` float32 [G, context, Dv], allocated once.

    A position's place is its number, so nothing moves when the conversation grows."""

    is_positional = True

    def __init__(self, heads: int, context: int, key_dim: int, value_dim: int) -> None:
        self.keys: Floats = np.zeros((heads, context, key_dim), np.float32)
        self.values: Floats = np.zeros((heads, context, value_dim), np.float32)

    @staticmethod
    def bytes_for(heads: int, context: int, key_dim: int, value_dim: int) -> int:
        """Bytes of a cache of these sizes."""
        return 4 * heads * context * (key_dim + value_dim)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def write(self, start: int, keys: Floats, values: Floats) -> None:
        """Stores keys [T, G, D] and values [T, G, Dv] of positions start .. start + T - 1."""
        stop = start + len(keys)
        self.keys[:, start:stop] = keys.transpose(1, 0, 2)
        self.values[:, start:stop] = values.transpose(1, 0, 2)

    def arrays(self, length: int) -> dict[str, Floats]:
        """What `length` positions fill of the two arrays, for a saved session."""
        return {"keys": self.keys[:, :length], "values": self.values[:, :length]}
