"""What to generate, whom to tell, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from uringinfer.models.base import Floats
from uringinfer.report import RunStatistics
from uringinfer.text.sampling import SamplingOptions
from uringinfer.text.stopping import StopConditions

FinishReason = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What to generate. `max_tokens` 0 only reads the prompt; `stop` are texts that end it; `ignore_eos` goes
    on behind the model's own end tokens. Raises UsageError for an empty stop string or a negative number."""

    max_tokens: int = 128
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    stop: Sequence[str] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        StopConditions(stop=self.stop, max_tokens=self.max_tokens)  # refuses now what it would refuse then


@dataclass(frozen=True, slots=True)
class Listener:
    """Whom to tell while it happens: `text` gets each piece of text that is final, `logits` float32
    [n, vocab] after every position fed, `prompt` (tokens fed, tokens in all)."""

    text: Callable[[str], None] | None = None
    logits: Callable[[Floats], None] | None = None
    prompt: Callable[[int, int], None] | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """What was generated. `text` is "" for a model without tokenizer; `seed` is the sampler's."""

    prompt_ids: list[int]
    tokens: list[int]
    text: str
    finish_reason: FinishReason
    seed: int
    stats: RunStatistics
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "prompt_ids": self.prompt_ids,
            "tokens": self.tokens,
            "text": self.text,
            "finish_reason": self.finish_reason,
            "seed": self.seed,
            "stats": self.stats.to_json(),
            "notes": self.notes,
        }
