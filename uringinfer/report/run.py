"""The statistics of one generation, as text for a person and as JSON for a script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from uringinfer.report.phases import Bound, Phase
from uringinfer.report.setup import Setup
from uringinfer.residency.expert_statistics import ExpertStatistics
from uringinfer.units import counted, format_rate, format_size


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
