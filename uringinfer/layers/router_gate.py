"""The projection that scores experts, fetched one layer early.

A router is small, and the layer before would like to know it: with it, that layer guesses which experts come
next and has them read ahead (the engine's lookahead). So a router's tensors are declared, and fetched, in the
layer before its own, and its packed bytes are copied and held until then. Two copies at most exist at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from uringinfer.kernels import Kernels
from uringinfer.kernels.formats import Weight
from uringinfer.layers.router import Router, Routing
from uringinfer.layers.tensors import TensorSpec
from uringinfer.layers.weights import Floats, Ids, Weights


@dataclass(frozen=True, slots=True)
class HeldGate:
    """A router in memory: its matrix, the bias of its logits, the correction of its choice."""

    router: Router
    weight: Weight
    bias: Floats | None
    correction: Floats | None

    def route(self, kernels: Kernels, x: Floats) -> Routing:
        """Chooses experts for x [T, hidden]."""
        return self.router.route(kernels, self._logits(kernels, x), self.correction)

    def guess(self, kernels: Kernels, x: Floats, count: int) -> Ids:
        """The `count` experts, or all there are, that x [T, hidden] would have chosen [T, count]."""
        count = min(count, self.weight.rows)
        return self.router.guess(kernels, self._logits(kernels, x), self.correction, count)

    def _logits(self, kernels: Kernels, x: Floats) -> Floats:
        logits = kernels.matmul(self.weight, x)
        if self.bias is not None:
            logits += self.bias
        return logits


@dataclass(frozen=True, slots=True)
class RouterGate:
    """Scores of `experts` experts. `bias` is added to the logits; `correction` names, in the checkpoint, a
    vector that counts for the choice of experts only."""

    name: str
    source: str
    experts: int
    hidden: int
    router: Router
    bias: bool = False
    correction: str | None = None

    @property
    def held_bytes(self) -> int:
        """Upper bound of the bytes that `fetch` copies."""
        return 4 * self.experts * (self.hidden + 2)

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The matrix, the bias, the correction."""
        shape = (self.experts, self.hidden)
        specs = [TensorSpec(self.name, shape, (f"{self.source}.weight",), whole=True, exact=True)]
        if self.bias:
            specs.append(self._vector("bias", f"{self.source}.bias"))
        if self.correction is not None:
            specs.append(self._vector("correction", self.correction))
        return tuple(specs)

    def _vector(self, part: str, source: str) -> TensorSpec:
        return TensorSpec(f"{self.name}.{part}", (self.experts,), (source,), kind="vector")

    def fetch(self, weights: Weights) -> HeldGate:
        """The router, copied out of the stream."""
        with weights.weight(self.name) as lent:
            weight = replace(lent, data=lent.data.copy())
        bias = weights.vector(f"{self.name}.bias") if self.bias else None
        correction = weights.vector(f"{self.name}.correction") if self.correction is not None else None
        return HeldGate(self.router, weight, bias, correction)
