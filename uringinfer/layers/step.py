"""What the layers of one forward pass share: whose tokens it carries, tables computed once, routers fetched
early."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from uringinfer.layers.rotary import Rotary
from uringinfer.layers.router_gate import HeldGate, RouterGate
from uringinfer.layers.weights import Floats, Weights


@dataclass(frozen=True, slots=True)
class Place:
    """One span's part of a pass: its tokens are the pass' rows [first, first + count), and stand at positions
    start .. start + count - 1 of its own conversation. On `trial`, some of the last may be taken back."""

    first: int
    count: int
    start: int
    trial: bool = False

    @property
    def rows(self) -> slice:
        """Its rows of an array [T, ...] of the whole pass."""
        return slice(self.first, self.first + self.count)


class Step:
    """One forward pass over spans: `spans` gives each one's first position and its number of tokens, `trials`
    the numbers of those that are on trial.

    Products, norms and experts see the tokens of all spans as one array [T, ...], span behind span; what
    looks at a conversation's past (attention, convolutions, recurrences) goes by `places`.
    """

    def __init__(self, spans: Sequence[tuple[int, int]], trials: Collection[int] = ()) -> None:
        ends = np.cumsum([count for _, count in spans]).tolist()
        self.places = tuple(
            Place(end - count, count, start, number in trials)
            for number, (end, (start, count)) in enumerate(zip(ends, spans, strict=True))
        )
        self.count: int = ends[-1]
        self._tables: dict[Rotary, tuple[Floats, Floats]] = {}
        self._gates: dict[str, HeldGate] = {}

    @property
    def is_decoding(self) -> bool:
        """Whether every span feeds a single token."""
        return self.count == len(self.places)

    def by_span(self, x: Floats) -> Iterator[tuple[Place, Floats]]:
        """Each place with its rows of x [T, ...], as views."""
        return ((place, x[place.rows]) for place in self.places)

    def own(self, x: Floats, place: Place) -> Floats:
        """A place's rows of x [T, ...], to be kept beyond the pass: a copy, unless they are all of x."""
        return x if place.count == self.count else x[place.rows].copy()

    def tables(self, rotary: Rotary) -> tuple[Floats, Floats]:
        """Cosine and sine of every token's position, float32 [T, R/2] each; computed on first use."""
        if rotary not in self._tables:
            each = [rotary.tables(place.start, place.count) for place in self.places]
            self._tables[rotary] = (joined([cos for cos, _ in each]), joined([sin for _, sin in each]))
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


def joined(parts: Sequence[Floats]) -> Floats:
    """Parts [t, ...] of one pass behind one another; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
