"""The gated activation between the two halves of a feed-forward network."""

from __future__ import annotations

from dataclasses import dataclass

from uringinfer.kernels import Kernels
from uringinfer.layers.weights import Floats


@dataclass(frozen=True, slots=True)
class Activation:
    """A kind of `kernels.gated` with its settings."""

    kind: str = "silu"
    limit: float = 0.0
    alpha: float = 1.0

    def forward(self, kernels: Kernels, gate: Floats, up: Floats) -> Floats:
        """gate, up [T, n] -> [T, n]."""
        return kernels.gated(self.kind, gate, up, limit=self.limit, alpha=self.alpha)


SILU = Activation()
