"""Root mean square normalisation with a learned scale."""

from __future__ import annotations

from dataclasses import dataclass

from uringinfer.layers.tensors import TensorSpec
from uringinfer.layers.weights import Floats, Weights


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """x * weight / sqrt(mean(x^2) + eps) over the last axis, of `size` channels."""

    name: str
    source: str
    size: int
    eps: float

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The scale [size]."""
        return (TensorSpec(self.name, (self.size,), (f"{self.source}.weight",), kind="vector"),)

    def forward(self, weights: Weights, x: Floats) -> Floats:
        """x [..., size] -> the same shape, a new array."""
        return self.apply(weights, x, weights.vector(self.name))

    def apply(self, weights: Weights, x: Floats, scale: Floats) -> Floats:
        """`forward` with the scale [size], which was asked for before."""
        return weights.kernels.rms_norm(x, scale, self.eps)
