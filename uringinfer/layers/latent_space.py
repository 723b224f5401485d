"""The narrower space in which the routed experts of a latent mixture work."""

from __future__ import annotations

from dataclasses import dataclass

from uringinfer.layers.linear import Linear
from uringinfer.layers.norm import RmsNorm
from uringinfer.layers.tensors import TensorSpec
from uringinfer.layers.weights import Floats, Weights


@dataclass(frozen=True, slots=True)
class LatentSpace:
    """`routed_expert_down_proj` leads into it, `routed_expert_up_proj` out of it.

    `norm_eps`: the experts' weighted sum is normed (`routed_expert_norm`) before it leaves, once for all of
    them; None leaves that out.
    """

    name: str
    source: str
    hidden: int
    size: int
    norm_eps: float | None

    def _linear(self, part: str, rows: int, cols: int) -> Linear:
        return Linear(f"{self.name}.{part}", f"{self.source}.{part}", rows, cols)

    def _down(self) -> Linear:
        return self._linear("routed_expert_down_proj", self.size, self.hidden)

    def _up(self) -> Linear:
        return self._linear("routed_expert_up_proj", self.hidden, self.size)

    def _norm(self) -> RmsNorm | None:
        if self.norm_eps is None:
            return None
        part = "routed_expert_norm"
        return RmsNorm(f"{self.name}.{part}", f"{self.source}.{part}", self.size, self.norm_eps)

    def way_in(self) -> tuple[TensorSpec, ...]:
        """What `enter` asks for."""
        return self._down().tensors()

    def way_out(self) -> tuple[TensorSpec, ...]:
        """What `leave` asks for."""
        norm = self._norm()
        return (*(norm.tensors() if norm else ()), *self._up().tensors())

    def enter(self, weights: Weights, x: Floats) -> Floats:
        """x [T, hidden] -> [T, size]."""
        return self._down().forward(weights, x)

    def leave(self, weights: Weights, mixture: Floats) -> Floats:
        """The experts' weighted sum [T, size] -> [T, hidden]."""
        norm = self._norm()
        return self._up().forward(weights, norm.forward(weights, mixture) if norm else mixture)
