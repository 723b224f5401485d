"""What a run was started with, and what it really got."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from uringinfer.units import format_size


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run was started with and what it really got; sizes are bytes."""

    model: str
    family: str
    budget: int
    context: int
    chunk: int
    pinned_bytes: int
    streamed_bytes: int
    plan_reason: str
    placement: str
    ring_slots: int
    reader: str
    is_direct: bool
    direct_reason: str
    overlaps: bool
    arena_bytes: int
    huge_bytes: int
    kernels: str
    simd: str
    threads: int
    cache_slots: int = 0
    cache_bytes: int = 0
    cache_policy: str | None = None
    lookahead: int = 0
    parallel: int = 1
    verify_reads: bool = False
    checksums: str | None = None
    """The library that checks reads, if they are checked."""
    snapshots: int = 0
    pass_tokens: int = 1
    guesses: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of the streamed trunk that is pinned: what every pass hits, certainly."""
        total = self.pinned_bytes + self.streamed_bytes
        return self.pinned_bytes / total if total else 1.0

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self.__slots__, "hit_rate")}

    def to_text(self) -> str:
        """The lines that a run starts with."""
        lru = (
            "" if not self.streamed_bytes else " (an LRU cache would hit 0 %: each pass uses everything once)"
        )
        direct = "direct" if self.is_direct else f"through the page cache ({self.direct_reason})"
        checked = f"checked ({self.checksums})" if self.verify_reads else "not checked"
        overlap = "reads overlap compute" if self.overlaps else "reads do not overlap compute"
        if not self.streamed_bytes:
            read = "only experts are" if self.cache_slots else "nothing is"
            overlap = f"{read} read while the model runs"
        huge = f"{format_size(self.huge_bytes)} of {format_size(self.arena_bytes)} in huge pages"
        return (
            f"{self.model} ({self.family}): budget {format_size(self.budget)}, pinned"
            f" {format_size(self.pinned_bytes)}, streamed {format_size(self.streamed_bytes)} per pass,"
            f" hit rate {self.hit_rate:.1%}{lru}\n"
            f"reader {self.reader}, {direct}, {checked}; {overlap}; {huge};"
            f" {self.kernels} kernels ({self.simd},"
            f" {self.threads} {'thread' if self.threads == 1 else 'threads'})"
            f"{self._cache_text()}{self._parallel_text()}"
        )

    def _parallel_text(self) -> str:
        if self.parallel == 1:
            return ""
        return f"\nroom for {self.parallel} conversations, which share passes of {self.pass_tokens} tokens"

    def _cache_text(self) -> str:
        if not self.cache_slots:
            return ""
        ahead = f"{self.lookahead} guessed ahead" if self.lookahead else "none guessed ahead"
        return (
            f"\nexpert cache {format_size(self.cache_bytes)}: {self.cache_slots} experts, policy"
            f" {self.cache_policy}, {ahead}"
        )
