"""What a run did, in numbers: as text for a person, as JSON for a script.

Counters are read at three moments (before the prompt, before decoding, at the end); everything here is a
difference between two of them. The waits are those of the thread that computes: while it waits, nothing else
of this process would have run.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from uringinfer.planning.paging import PagingCounters
from uringinfer.residency.checker import CheckStatistics
from uringinfer.residency.expert_statistics import ExpertStatistics
from uringinfer.residency.trunk import TrunkStatistics
from uringinfer.units import counted, format_rate, format_size

Bound = Literal["drive", "one read at a time", "memory or compute"]

BOUND_WAIT_SHARE = 0.25
"""A phase that waits for the drive for more than this share of its time is bound by reading."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at one moment: seconds of a monotonic clock, bytes, seconds of CPU time of the process."""

    seconds: float
    trunk: TrunkStatistics
    experts: ExpertStatistics
    user_seconds: float
    system_seconds: float
    bytes_written: int | None
    paging: PagingCounters = field(default_factory=PagingCounters)
    checks: CheckStatistics = field(default_factory=CheckStatistics)

    @classmethod
    def take(
        cls,
        trunk: TrunkStatistics,
        experts: ExpertStatistics | None = None,
        checks: CheckStatistics | None = None,
        *,
        proc: Path = Path("/proc"),
    ) -> Snapshot:
        """The process' counters now. `bytes_written` is None where the kernel keeps no count of it."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(
            time.perf_counter(),
            trunk,
            experts or ExpertStatistics(),
            usage.ru_utime,
            usage.ru_stime,
            _storage_bytes_written(proc),
            PagingCounters.take(proc),
            checks or CheckStatistics(),
        )


def _storage_bytes_written(proc: Path) -> int | None:
    try:
        lines = (proc / "self/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split(":")[1]) for line in lines if line.startswith("write_bytes:")), None)


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run, the prompt or the decoding: `tokens` fed in `passes` passes over the weights.

    `pinned_bytes` and `streamed_bytes` are what the passes used from memory and from the drive,
    `embedding_bytes` what rows read on demand took, `experts` what the expert cache did. `wait_seconds` of
    `seconds` went by waiting for reads; in `in_flight_seconds` of them a read was in flight, until it was
    noticed that it was over. `checked_bytes` of what was read were checked, for which the computing thread
    spent or waited `check_seconds`; `repeated_reads` were damaged, and right when they were made again.
    """

    tokens: int
    passes: int
    seconds: float
    wait_seconds: float
    in_flight_seconds: float
    pinned_bytes: int
    streamed_bytes: int
    embedding_bytes: int
    experts: ExpertStatistics
    user_seconds: float
    system_seconds: float
    paging: PagingCounters = field(default_factory=PagingCounters)
    checked_bytes: int = 0
    check_seconds: float = 0.0
    repeated_reads: int = 0

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot, tokens: int) -> Phase:
        first, last = before.trunk, after.trunk
        experts = after.experts.since(before.experts)
        return cls(
            tokens=tokens,
            passes=last.passes - first.passes,
            seconds=after.seconds - before.seconds,
            wait_seconds=last.wait_seconds - first.wait_seconds + experts.wait_seconds,
            in_flight_seconds=last.in_flight_seconds - first.in_flight_seconds,
            pinned_bytes=last.pinned_bytes - first.pinned_bytes,
            streamed_bytes=last.streamed_bytes - first.streamed_bytes,
            embedding_bytes=last.embedding_bytes - first.embedding_bytes,
            experts=experts,
            user_seconds=after.user_seconds - before.user_seconds,
            system_seconds=after.system_seconds - before.system_seconds,
            paging=after.paging.since(before.paging),
            checked_bytes=after.checks.nbytes - before.checks.nbytes,
            check_seconds=after.checks.seconds - before.checks.seconds,
            repeated_reads=after.checks.repeated - before.checks.repeated,
        )

    @property
    def bytes_read(self) -> int:
        """Bytes that the phase took from the drive."""
        experts = self.experts.demanded_bytes + self.experts.guessed_bytes
        return self.streamed_bytes + self.embedding_bytes + experts

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.seconds if self.tokens and self.seconds > 0 else None

    @property
    def bytes_per_token(self) -> float | None:
        return self.bytes_read / self.tokens if self.tokens else None

    @property
    def hit_rate(self) -> float | None:
        """Share of the used weights' bytes that was in memory already, 0 to 1."""
        used = self.pinned_bytes + self.streamed_bytes
        return self.pinned_bytes / used if used else None

    @property
    def wait_share(self) -> float | None:
        """Share of the time that went by waiting for reads, 0 to 1."""
        return self.wait_seconds / self.seconds if self.seconds > 0 else None

    @property
    def in_flight_share(self) -> float | None:
        """Share of the time with a read in flight, 0 to 1."""
        return self.in_flight_seconds / self.seconds if self.seconds > 0 else None

    @property
    def in_flight_rate(self) -> float | None:
        """Bytes per second from the drive while a read was in flight."""
        return self.bytes_read / self.in_flight_seconds if self.in_flight_seconds > 0 else None

    @property
    def read_rate(self) -> float | None:
        """Bytes per second from the drive, over the whole phase."""
        return self.bytes_read / self.seconds if self.seconds > 0 else None

    @property
    def system_seconds_per_gb(self) -> float | None:
        """Kernel CPU time for each 10^9 bytes read; None if nothing was read."""
        return self.system_seconds / (self.bytes_read / 1e9) if self.bytes_read else None

    def bound_by(self, *, overlaps: bool) -> Bound:
        """What a faster run would need first."""
        if (self.wait_share or 0.0) < BOUND_WAIT_SHARE:
            return "memory or compute"
        return "drive" if overlaps else "one read at a time"

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "passes": self.passes,
            "seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "bytes_read": self.bytes_read,
            "bytes_per_token": self.bytes_per_token,
            "hit_rate": self.hit_rate,
            "disk_wait_share": self.wait_share,
            "in_flight_share": self.in_flight_share,
            "in_flight_bytes_per_second": self.in_flight_rate,
            "read_bytes_per_second": self.read_rate,
            "experts": self.experts.to_json() if self.experts.used else None,
            "user_seconds": self.user_seconds,
            "system_seconds": self.system_seconds,
            "system_seconds_per_gb": self.system_seconds_per_gb,
            **self.paging.to_json(),
            "checked_bytes": self.checked_bytes,
            "check_seconds": self.check_seconds,
            "repeated_reads": self.repeated_reads,
        }


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


def excess(budget: int, peak: int, peak_before: int = 0) -> int:
    """Bytes of a process' `peak` above `budget`; 0 if the process had no less before the model was loaded."""
    return peak - budget if peak > max(budget, peak_before) else 0


def excess_notes(budget: int, peak: int, peak_before: int = 0) -> list[str]:
    """The line that a run which exceeded its budget says; none for any other."""
    beyond = excess(budget, peak, peak_before)
    if not beyond:
        return []
    return [
        f"the budget of {format_size(budget)} was exceeded by {format_size(beyond)} (peak memory"
        f" {format_size(peak)}): please report it with the model and the command"
    ]


@dataclass(frozen=True, slots=True)
class DraftStatistics:
    """What guesses did: of `guessed` tokens `accepted` were what was drawn, in `passes` that carried some."""

    source: str
    guessed: int = 0
    accepted: int = 0
    passes: int = 0

    @property
    def accepted_share(self) -> float:
        return self.accepted / self.guessed if self.guessed else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "guessed": self.guessed,
            "accepted": self.accepted,
            "accepted_share": self.accepted_share,
            "passes": self.passes,
        }

    def to_text(self) -> str:
        """A line for the report."""
        return (
            f"drafts by {self.source}: {self.accepted} of {self.guessed} guesses accepted"
            f" ({self.accepted_share:.0%}), in {self.passes} passes"
        )


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """The statistics of one generation.

    `first_token_seconds` counts from the start of the prompt, loading apart; None if no token was made. A
    decode token is one that was fed after the prompt: the first generated token belongs to the prompt.
    `bytes_written` counts what this process caused to be written to storage, and should be 0. `peak_before`
    is the peak memory of the process before it loaded the model, which no budget of an engine bounds.
    `drafts` is what guessed tokens did, if any could be made.
    """

    setup: Setup
    prompt: Phase
    decode: Phase
    load_seconds: float
    first_token_seconds: float | None
    peak_rss: int
    bytes_written: int | None
    peak_before: int = 0
    drafts: DraftStatistics | None = None

    @property
    def exceeded_bytes(self) -> int:
        """How far the peak lies above the budget; 0 in every run that is as it should be."""
        return excess(self.setup.budget, self.peak_rss, self.peak_before)

    def warnings(self) -> list[str]:
        """What went wrong with memory, a line each: a budget that was exceeded, and paging."""
        found = excess_notes(self.setup.budget, self.peak_rss, self.peak_before)
        phase = self.decode if self.decode.tokens else self.prompt
        return found + phase.paging.notes(phase.seconds)

    @property
    def tokens_per_pass(self) -> float:
        """Of decoding; 1 without guesses that were right."""
        return self.decode.tokens / self.decode.passes if self.decode.passes else 1.0

    @property
    def bound_by(self) -> Bound:
        """What bound the longer part of the run that was measured: decoding, if there was any."""
        phase = self.decode if self.decode.tokens else self.prompt
        return phase.bound_by(overlaps=self.setup.overlaps)

    def to_json(self) -> dict[str, Any]:
        return {
            "setup": self.setup.to_json(),
            "prompt": self.prompt.to_json(),
            "decode": self.decode.to_json(),
            "load_seconds": self.load_seconds,
            "first_token_seconds": self.first_token_seconds,
            "peak_rss_bytes": self.peak_rss,
            "budget_bytes": self.setup.budget,
            "exceeded_bytes": self.exceeded_bytes,
            "bytes_written": self.bytes_written,
            "drafts": None if self.drafts is None else self.drafts.to_json(),
            "bound_by": self.bound_by,
        }

    def to_text(self) -> str:
        """A few lines for a person."""
        lines = [_phase_text("prompt", self.prompt), _phase_text("decode", self.decode)]
        if self.first_token_seconds is not None:
            lines.append(
                f"first token after {self.first_token_seconds:.2f} s, loaded in {self.load_seconds:.2f} s"
            )
        written = (
            "not counted by this kernel" if self.bytes_written is None else format_size(self.bytes_written)
        )
        lines.append(
            f"peak memory {format_size(self.peak_rss)} of {format_size(self.setup.budget)};"
            f" written to storage: {written}; bound by {self.bound_by}"
        )
        if self.drafts is not None and self.drafts.guessed:
            lines.append(f"{self.drafts.to_text()}; {self.tokens_per_pass:.2f} tokens per pass")
        return "\n".join(line for line in lines if line)


def _phase_text(name: str, phase: Phase) -> str:
    if not phase.tokens:
        return ""
    parts = [f"{name}: {phase.tokens} {'token' if phase.tokens == 1 else 'tokens'} in {phase.seconds:.2f} s"]
    if phase.tokens_per_second is not None:
        parts.append(f"{phase.tokens_per_second:.2f} tokens/s")
    parts.append(f"{format_size(round(phase.bytes_read / phase.tokens))} read per token")
    if phase.hit_rate is not None:
        parts.append(f"hit rate {phase.hit_rate:.1%}")
    parts.append(f"{phase.wait_share or 0.0:.0%} waiting for the drive")
    if phase.bytes_read and phase.read_rate is not None:
        parts.append(
            f"read at {format_rate(phase.read_rate)}, reads in flight for"
            f" {phase.in_flight_share or 0.0:.0%} of the time"
        )
        parts.append(f"{1e3 * (phase.system_seconds_per_gb or 0.0):.0f} ms kernel CPU per GB")
    if phase.checked_bytes and phase.seconds:
        parts.append(f"{phase.check_seconds / phase.seconds:.1%} checking reads")
    if phase.repeated_reads:
        parts.append(f"{counted(phase.repeated_reads, 'damaged read')} made again")
    return ", ".join(parts) + _experts_text(phase.experts)


def _experts_text(experts: ExpertStatistics) -> str:
    if not experts.used:
        return ""
    # what is used may have been guessed in the phase before: neither number is a part of the other
    text = (
        f"\n  experts: {experts.hits} hit, {experts.prefetched} prefetched, {experts.misses} missed"
        f" ({format_size(experts.demanded_bytes)}); {experts.guesses} read ahead"
        f" ({format_size(experts.guessed_bytes)}); hit rate {experts.hit_rate:.1%}"
    )
    if experts.recall is None:
        return text
    return f"{text}, early guesses named {experts.recall:.1%} of what was used"
