"""How much memory the expert cache gets beside the trunk: where the next byte saves more reading.

A byte of pinned trunk saves exactly one byte read per token, because every token uses all of the trunk. A
byte of expert cache saves what the cache's hit rate gains by it, and that is never more than one: an expert
is used at most once per token, and most are used rarely. So the cache first gets two layers' worth of slots
(what a turn needs, and what its guesses need), then the trunk gets memory until all of it is pinned, and the
cache gets all that is left.

What the cache is expected to hit is learned from a model's usage counts, or taken from a prior. Pure
functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Curve = Sequence[tuple[float, float]]
"""Points (share of all experts in slots, expected hit rate) from (0, 0) to (1, 1), ascending and concave."""

PRIOR: Curve = ((0, 0), (0.03, 0.315), (0.06, 0.437), (0.12, 0.586), (0.24, 0.723), (1, 1))
"""Decayed counts on a public trace of 26 layers with 256 experts each, 8 of them used per token."""


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """The routed experts of a model: in each of `layers` layers `per_token` of `count` are used per token,
    each a record of at most `record_bytes`."""

    layers: int
    count: int
    per_token: int
    record_bytes: int

    @property
    def total(self) -> int:
        """Experts in all layers."""
        return self.layers * self.count

    @property
    def least_slots(self) -> int:
        """What a run needs at least: one layer's experts of one token."""
        return min(self.total, max(2, self.per_token))


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The expert cache: `slots` of `record_bytes`; `hit_rate` is expected from `basis`, not certain.

    A token uses `per_token` experts in each of `layers` layers. Of these, early guesses are known to name the
    share `recall`, 0 to 1, before they are asked for, by naming `named` experts of a layer; None where
    nothing is known.
    """

    slots: int
    record_bytes: int
    total_experts: int
    layers: int
    per_token: int
    hit_rate: float
    basis: str
    recall: float | None = None
    named: int = 0

    @property
    def nbytes(self) -> int:
        return self.slots * self.record_bytes

    @property
    def used_bytes_per_token(self) -> int:
        """All the experts that a token uses."""
        return self.layers * self.per_token * self.record_bytes

    @property
    def foreseen(self) -> float:
        """Share of the experts not in memory that are read on a guess before they are asked for, 0 to 1. The
        first layer is not guessed about."""
        return (self.recall or 0.0) * (self.layers - 1) / self.layers

    @property
    def miss_rate(self) -> float:
        """Share of the experts that are read when they are asked for, 0 to 1."""
        return (1 - self.hit_rate) * (1 - self.foreseen)

    @property
    def bytes_per_token(self) -> int:
        """Expected to be read of what a token uses, on a guess or when it is asked for."""
        return round((1 - self.hit_rate) * self.used_bytes_per_token)

    @property
    def wrong_per_turn(self) -> float:
        """Experts that guesses about a layer are expected to name and its turn does not use."""
        return 0.0 if self.recall is None else max(0.0, self.named - self.recall * self.per_token)

    @property
    def wrong_bytes_per_token(self) -> int:
        """Expected to be read on wrong guesses, while the drive has nothing else to do."""
        return round((1 - self.hit_rate) * self.wrong_per_turn * (self.layers - 1) * self.record_bytes)

    def to_json(self) -> dict[str, Any]:
        return {
            "slots": self.slots,
            "record_bytes": self.record_bytes,
            "nbytes": self.nbytes,
            "total_experts": self.total_experts,
            "expected_hit_rate": self.hit_rate,
            "expected_bytes_per_token": self.bytes_per_token,
            "expected_miss_rate": self.miss_rate,
            "recall": self.recall,
            "expected_wrong_bytes_per_token": self.wrong_bytes_per_token,
            "basis": self.basis,
        }


def curve_of_usage(counts: NDArray[np.int64]) -> Curve:
    """The curve of usage counts, one for each expert of each layer: the most used ones in slots.

    Of the difference between an expert's count and the mean, only that part counts which chance does not
    explain: counts of a short run differ though all experts are used alike, and the most used ones of that
    run are not those of the next. A count that is drawn has a variance of its mean; what the counts'
    variance has beyond that belongs to the experts (empirical Bayes, for gamma-distributed rates).

    Raises ValueError if nothing was used.
    """
    ordered = np.sort(counts.reshape(-1))[::-1].astype(np.float64)
    if not ordered.size or ordered[0] <= 0:
        raise ValueError("no expert was used")
    mean, variance = ordered.mean(), ordered.var()
    rates = mean + max(0.0, 1 - mean / variance) * (ordered - mean) if variance else ordered
    hit = np.cumsum(rates) / rates.sum()
    places = np.unique(np.linspace(0, ordered.size - 1, 1025).round().astype(int))
    points = [((place + 1) / ordered.size, float(hit[place])) for place in places]
    return [(0.0, 0.0), *points]


def expected_hit_rate(slots: int, experts: ExpertSizes, curve: Curve) -> float:
    """What `slots` slots hit, 0 to 1, by `curve`, and at most one expert of each token a slot."""
    shares, rates = zip(*curve, strict=True)
    learned = float(np.interp(slots / experts.total, shares, rates))
    return min(learned, slots / (experts.layers * experts.per_token))


def plan_cache(
    slots: int, experts: ExpertSizes, curve: Curve | None, recall: float | None = None, named: int = 0
) -> CachePlan:
    """The plan of a cache with so many slots; `curve` None takes the prior."""
    return CachePlan(
        slots=slots,
        record_bytes=experts.record_bytes,
        total_experts=experts.total,
        layers=experts.layers,
        per_token=experts.per_token,
        hit_rate=expected_hit_rate(slots, experts, curve or PRIOR),
        recall=recall,
        named=named,
        basis="prior of a public trace" if curve is None else "this model's usage",
    )


def split_slots(room: int, trunk_bytes: int, trunk_floor: int, experts: ExpertSizes) -> int:
    """Slots of the cache when `room` bytes are divided between it and a trunk of `trunk_bytes`, which needs
    at least `trunk_floor`."""
    fitting = max(0, room - trunk_floor) // experts.record_bytes
    wanted = max(2 * experts.per_token, (room - trunk_bytes) // experts.record_bytes)
    return max(experts.least_slots, min(wanted, fitting, experts.total))
