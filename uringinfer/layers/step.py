"""What the layers of one forward pass share: where it stands, tables computed once, routers fetched early."""

from __future__ import annotations

from uringinfer.layers.rotary import Rotary
from uringinfer.layers.router_gate import HeldGate, RouterGate
from uringinfer.layers.weights import Floats, Weights


class Step:
    """One forward pass over `count` tokens at positions start .. start + count - 1."""

    def __init__(self, start: int, count: int) -> None:
        self.start = start
        self.count = count
        self._tables: dict[Rotary, tuple[Floats, Floats]] = {}
        self._gates: dict[str, HeldGate] = {}

    def tables(self, rotary: Rotary) -> tuple[Floats, Floats]:
        """Cosine and sine of this pass' positions, float32 [count, R/2] each; computed on first use."""
        if rotary not in self._tables:
            self._tables[rotary] = rotary.tables(self.start, self.count)
        return self._tables[rotary]

    def fetch_gate(self, weights: Weights, gate: RouterGate) -> None:
        """Takes a router out of the stream and holds it until `take_gate`."""
        self._gates[gate.name] = gate.fetch(weights)

    def gate(self, gate: RouterGate) -> HeldGate:
        """A router that was fetched."""
        return self._gates[gate.name]

    def take_gate(self, gate: RouterGate) -> HeldGate:
        """A router that was fetched; the step holds it no longer."""
        return self._gates.pop(gate.name)
