"""What an expert cache counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from uringinfer.storage.reader import Priority

COUNTED_AS = {
    Priority.DEMAND: "demanded",
    Priority.TRUNK: "preloaded",
    Priority.EXPECTED: "guessed",
    Priority.SPECULATION: "guessed",
}
"""As what the bytes of a read count."""


@dataclass(frozen=True, slots=True)
class ExpertStatistics:
    """Counters since the cache was made. An expert that a turn uses for several tokens counts once.

    `hits` were in memory by an earlier use, `prefetched` because they had been guessed, `misses` were not.
    `guesses` is how many were read on a guess. Bytes are what was read for demands, for guesses, and to fill
    slots at the start. Of `recall_demanded` experts in turns that had been guessed about, the early
    guess named `recall_named`.
    """

    hits: int = 0
    misses: int = 0
    prefetched: int = 0
    guesses: int = 0
    demanded_bytes: int = 0
    guessed_bytes: int = 0
    preloaded_bytes: int = 0
    wait_seconds: float = 0.0
    recall_demanded: int = 0
    recall_named: int = 0

    @property
    def used(self) -> int:
        """Experts handed out, in all turns."""
        return self.hits + self.misses + self.prefetched

    @property
    def hit_rate(self) -> float:
        """Share of them that was in memory or on its way, 0 to 1."""
        return 1 - self.misses / self.used if self.used else 1.0

    @property
    def recall(self) -> float | None:
        """Share of the experts in guessed turns that the guesses had named; None without guesses."""
        return self.recall_named / self.recall_demanded if self.recall_demanded else None

    def since(self, before: ExpertStatistics) -> ExpertStatistics:
        """What was counted after `before`."""
        return ExpertStatistics(*(getattr(self, n) - getattr(before, n) for n in self.__slots__))

    def to_json(self) -> dict[str, Any]:
        counters = {name: getattr(self, name) for name in self.__slots__}
        return {**counters, "hit_rate": self.hit_rate, "recall": self.recall}
