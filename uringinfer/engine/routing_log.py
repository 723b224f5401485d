"""What routers chose in a run: counted for `usage.json`, and written as a trace if one is wanted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import UsageError
from uringinfer.residency.trace import TraceWriter
from uringinfer.residency.usage import UsageCounts


def dense_model(path: Path, what: str) -> UsageError:
    """The error of asking the dense model at `path` for `what`, which only a mixture of experts has."""
    return UsageError(f"{path} has no routed experts, so there is no {what}", hint="leave the option out")


class RoutingLog:
    """Hears of every demand of the expert cache (`routed`), and writes each token's choices to `writer`.

    A pass ends where a layer comes that is not behind the last one; `end_pass` ends the last.
    """

    def __init__(self, counts: UsageCounts) -> None:
        self.counts = counts
        self.writer: TraceWriter | None = None
        self._pass: list[tuple[int, NDArray[np.int64]]] = []
        self._tokens = 0

    def routed(self, layer: int, routed: NDArray[np.int64]) -> None:
        """`layer` has chosen `routed` [T, K]."""
        self.counts.add(layer, routed)
        if self.writer is not None:
            if self._pass and layer <= self._pass[-1][0]:
                self.end_pass()
            self._pass.append((layer, routed.copy()))

    def end_pass(self) -> None:
        """Writes the tokens of the pass that is complete."""
        if self.writer is not None and self._pass:
            for token in range(len(self._pass[0][1])):
                layers = [(layer, routed[token].tolist()) for layer, routed in self._pass]
                self.writer.write_token(self._tokens, layers)
                self._tokens += 1
        self._pass.clear()
