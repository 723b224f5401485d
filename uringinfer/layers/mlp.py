"""The gated feed-forward network: down(act(gate(x)) * up(x))."""

from __future__ import annotations

from dataclasses import dataclass

from uringinfer.layers.activation import SILU, Activation
from uringinfer.layers.linear import Linear
from uringinfer.layers.step import Step
from uringinfer.layers.tensors import TensorSpec
from uringinfer.layers.weights import Floats, Weights


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """SwiGLU and its kin; `bias` holds for all projections."""

    name: str
    source: str
    hidden: int
    inner: int
    activation: Activation = SILU
    bias: bool = False

    def _projection(self, part: str, rows: int, cols: int) -> Linear:
        return Linear(f"{self.name}.{part}", f"{self.source}.{part}", rows, cols, self.bias)

    def _parts(self) -> tuple[Linear, Linear, Linear]:
        gate = self._projection("gate_proj", self.inner, self.hidden)
        up = self._projection("up_proj", self.inner, self.hidden)
        return gate, up, self._projection("down_proj", self.hidden, self.inner)

    def tensors(self) -> tuple[TensorSpec, ...]:
        """gate_proj, up_proj, down_proj, each with its bias behind it."""
        return tuple(spec for part in self._parts() for spec in part.tensors())

    def scratch_bytes(self, chunk: int) -> int:
        """Upper bound of the temporary arrays of `forward`, its result included."""
        return 4 * chunk * (3 * self.inner + self.hidden)

    def forward(self, weights: Weights, x: Floats, step: Step) -> Floats:
        """x [T, hidden] -> [T, hidden]."""
        gate, up, down = self._parts()
        gated = self.activation.forward(weights.kernels, gate.forward(weights, x), up.forward(weights, x))
        return down.forward(weights, gated)
