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

    @property
    def is_coming(self) -> bool:
        """Its read is not over, as far as the reader has been asked."""
        return self.slot.ticket is not None and not self.slot.ticket.done


@dataclass(slots=True)
class Turn:
    """What one demand still has to hand out: experts in memory, being read, and without a slot."""

    layer: int
    batch: int
    """Experts handed out at once, at most."""
    here: list[Resident]
    coming: list[Resident]
    waiting: deque[ExpertKey]

    @property
    def overlaps(self) -> bool:
        """Whether some of its experts can be computed while the drive reads others."""
        return bool(self.here) and any(entry.is_coming for entry in self.coming)

    def next_batch(self) -> list[Resident]:
        """What can be used now, in memory or arrived; at least one, which may have to be waited for."""
        here = self.here[: self.batch]
        if len(here) == self.batch:
            return here
        arrived = [entry for entry in self.coming if not entry.is_coming][: self.batch - len(here)]
        if not here and not arrived:
            arrived = self.coming[:1]
        return [*here, *arrived]

    def remove(self, batch: list[Resident]) -> None:
        """`batch`, the last that `next_batch` gave, was handed out."""
        from_here = min(self.batch, len(self.here))
        del self.here[:from_here]
        if from_here < len(batch):
            self.coming = [entry for entry in self.coming if entry not in batch]
