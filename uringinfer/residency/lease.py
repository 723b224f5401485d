"""Slots and leases: who may use a piece of memory, and until when.

A slot counts generations. A lease is made for the slot's current generation and is valid only as long as
that generation lasts; giving the lease back ends it. So a lease that outlives its slot's content is an error
at its next use, not silently wrong weights.
"""

from __future__ import annotations

from collections.abc import Callable

from uringinfer.errors import ResidencyError
from uringinfer.residency.checker import Started
from uringinfer.storage.reader import Bytes, Ticket

POISON = 0xFF
"""What a recycled slot is filled with when poisoning is on: a NaN in every float format."""


class Slot:
    """A piece of memory that holds one thing after another. `ticket` is the read that fills it, if any, and
    `check` the checksum of what it brought, if that is being computed."""

    __slots__ = ("check", "generation", "leased", "memory", "ticket")

    def __init__(self, memory: Bytes) -> None:
        self.memory = memory
        self.ticket: Ticket | None = None
        self.check: Started | None = None
        self.generation = 0
        self.leased = False

    def expire(self) -> None:
        """Ends the current generation: no lease of it is valid any more."""
        self.generation += 1
        self.leased = False


class Lease:
    """The right to use `nbytes` of a slot, which hold what `name` says, until `release`."""

    __slots__ = ("_on_release", "_slot", "_view", "generation", "name")

    def __init__(
        self, name: str, slot: Slot, nbytes: int, on_release: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self.generation = slot.generation
        self._slot = slot
        self._view = slot.memory[:nbytes]
        self._on_release = on_release
        slot.leased = True

    @property
    def data(self) -> Bytes:
        """The bytes, uint8 [nbytes]. Raises ResidencyError once the lease is over."""
        if self._slot.generation != self.generation:
            raise ResidencyError(
                f"'{self.name}' was used after its lease was over (generation {self.generation},"
                f" the slot is at {self._slot.generation})"
            )
        return self._view

    def release(self) -> None:
        """Gives the bytes back. Raises ResidencyError if the lease is over already."""
        if self._slot.generation != self.generation:
            raise ResidencyError(f"the lease of '{self.name}' was given back after it was over")
        self._slot.expire()
        if self._on_release is not None:
            self._on_release()

    def cancel(self) -> None:
        """Ends the lease without anything following from it; may be over already."""
        if self._slot.generation == self.generation:
            self._slot.expire()
