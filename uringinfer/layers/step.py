"""What the layers of one forward pass share: where it stands, and tables computed once for all of them."""

from __future__ import annotations

from uringinfer.layers.rotary import Rotary
from uringinfer.layers.weights import Floats


class Step:
    """One forward pass over `count` tokens at positions start .. start + count - 1."""

    def __init__(self, start: int, count: int) -> None:
        self.start = start
        self.count = count
        self._tables: dict[Rotary, tuple[Floats, Floats]] = {}

    def tables(self, rotary: Rotary) -> tuple[Floats, Floats]:
        """Cosine and sine of this pass' positions, float32 [count, R/2] each; computed on first use."""
        if rotary not in self._tables:
            self._tables[rotary] = rotary.tables(self.start, self.count)
        return self._tables[rotary]
