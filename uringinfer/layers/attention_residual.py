"""Attention residuals: a layer reads a mixture of earlier blocks of layers instead of one running sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uringinfer.layers.tensors import TensorSpec
from uringinfer.layers.weights import Floats, Weights


@dataclass(frozen=True, slots=True)
class AttentionResidual:
    """Each token attends over its own sources: the normed ones give the scores, the raw ones are mixed.

    `name` and `source` go on with `_norm` and `_proj`. One source gives itself back.
    """

    name: str
    source: str
    hidden: int
    eps: float

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The norm's scale [hidden] and the projection [1, hidden]."""
        shapes = {"norm": (self.hidden,), "proj": (1, self.hidden)}
        return tuple(
            TensorSpec(f"{self.name}_{part}", shape, (f"{self.source}_{part}.weight",), kind="vector")
            for part, shape in shapes.items()
        )

    def forward(self, weights: Weights, sources: Sequence[Floats]) -> Floats:
        """Sources [T, hidden], one or more, -> [T, hidden]."""
        norm = weights.vector(f"{self.name}_norm")
        projection = weights.vector(f"{self.name}_proj").reshape(self.hidden)
        return weights.kernels.attention_residual(sources, norm * projection, self.eps)
