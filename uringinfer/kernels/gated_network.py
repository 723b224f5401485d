"""A gated feed-forward network in packed form, as one function multiplies it: an expert, for instance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from uringinfer.kernels.formats import Weight
from uringinfer.kernels.weight_format import Floats


@dataclass(frozen=True, eq=False)
class GatedNetwork:
    """down(act(gate(x)) * up(x)): gate, up [inner, hidden], down [outer, inner], and biases float32 [rows]
    that are added to the products, or None. It is itself alone: no two are equal."""

    gate: Weight
    up: Weight
    down: Weight
    gate_bias: Floats | None = None
    up_bias: Floats | None = None
    down_bias: Floats | None = None

    def parts(self) -> Iterator[tuple[Weight, Floats | None]]:
        """Gate, up and down, each with its bias."""
        yield self.gate, self.gate_bias
        yield self.up, self.up_bias
        yield self.down, self.down_bias

    @cached_property
    def shape(self) -> tuple[str | int, ...]:
        """Format, rows and columns of gate, up and down."""
        gate, up, down = self.gate, self.up, self.down
        return (
            *(gate.format.name, gate.rows, gate.cols),
            *(up.format.name, up.rows, up.cols),
            *(down.format.name, down.rows, down.cols),
        )
