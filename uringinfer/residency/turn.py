"""What the expert cache knows of an expert in a slot, and of a layer's turn to use some of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from uringinfer.residency.lease import Slot
from uringinfer.residency.policies import ExpertKey
from uringinfer.residency.records import ExpertWeights


class Resident:
    """An expert in a slot, or on its way there (`slot.ticket`)."""

    __slots__ = ("failed", "is_guess", "is_hinted", "is_used", "key", "slot", "weights")

    def __init__(self, key: ExpertKey, slot: Slot) -> None:
        self.key = key
        self.slot = slot
        self.is_used = False
        """The current turn has yet to hand it out."""
        self.is_hinted = False
        """It was guessed, and its layer's turn is still to come."""
        self.is_guess = False
        """It was read on a guess and never used."""
        self.failed = False
        """Its read failed; the slot holds nothing."""
        self.weights: ExpertWeights | None = None
        """What the slot holds, once it was used."""


@dataclass(slots=True)
class Turn:
    """What one demand still has to hand out: experts in memory, being read, and without a slot."""

    layer: int
    batch: int
    """Experts handed out at once, at most."""
    here: list[Resident]
    coming: list[Resident]
    waiting: deque[ExpertKey]
