"""A projection with an optional bias."""

from __future__ import annotations

from dataclasses import dataclass

from uringinfer.layers.tensors import TensorSpec
from uringinfer.layers.weights import Floats, Weights


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x W^T (+ bias). `name` is the container's, `source` the checkpoint's without '.weight'."""

    name: str
    source: str
    rows: int
    cols: int
    bias: bool = False

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The matrix [rows, cols], then the bias."""
        matrix = TensorSpec(self.name, (self.rows, self.cols), (f"{self.source}.weight",))
        if not self.bias:
            return (matrix,)
        return matrix, TensorSpec(f"{self.name}.bias", (self.rows,), (f"{self.source}.bias",), kind="vector")

    def forward(self, weights: Weights, x: Floats) -> Floats:
        """x [T, cols] -> [T, rows]."""
        y = weights.matmul(self.name, x)
        if self.bias:
            y += weights.vector(f"{self.name}.bias")
        return y
