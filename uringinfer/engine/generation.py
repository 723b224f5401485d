"""What to generate, whom to tell, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from uringinfer.errors import UsageError
from uringinfer.models.base import Floats
from uringinfer.report import RunStatistics
from uringinfer.text.constraints import Mask
from uringinfer.text.logprobs import TokenLogprobs
from uringinfer.text.rendering import ReplyKind
from uringinfer.text.sampling import SamplingOptions
from uringinfer.text.stopping import StopConditions

FinishReason = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What to generate. `max_tokens` 0 only reads the prompt; `stop` is a text that ends it, or several, or
    the text of a special token; `ignore_eos` goes on behind the model's own end tokens. `logprobs` asks for
    the probability of every token and of so many others. `logit_bias` is added to logits of single tokens,
    `mask` says before each token what may be chosen (`text/constraints.py`).

    Raises UsageError for an empty stop string or a number that cannot be."""

    max_tokens: int = 128
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    stop: str | Sequence[str] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    mask: Mask | None = None

    def __post_init__(self) -> None:
        StopConditions(stop=self.stop, max_tokens=self.max_tokens)  # refuses now what it would refuse then
        if self.logprobs is not None and self.logprobs < 0:
            raise UsageError(f"logprobs is {self.logprobs}", hint="it must be 0 or more, or None")


@dataclass(frozen=True, slots=True)
class Listener:
    """Whom to tell while it happens: `text` gets each piece of text that is final, `logits` float32
    [n, vocab] after every position fed, `prompt` (tokens fed, tokens in all)."""

    text: Callable[[str], None] | None = None
    logits: Callable[[Floats], None] | None = None
    prompt: Callable[[int, int], None] | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Some more of what is being generated: `ids` that were chosen, and `text` that is final now; either may
    be empty, because a character or a stop text may be spread over several tokens. `kind` says what the text
    belongs to, `logprobs` are those of `ids`, if they were asked for."""

    text: str
    kind: ReplyKind = "answer"
    ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Generation:
    """What was generated.

    `text` is the answer, "" for a model without tokenizer; what a chat format told apart from it is in
    `reasoning` and in `message`, the reply as a message of the conversation, None where there is no chat
    format. `logprobs` are those of `tokens`, if they were asked for. `seed` is the sampler's.
    """

    prompt_ids: list[int]
    tokens: list[int]
    text: str
    finish_reason: FinishReason
    seed: int
    stats: RunStatistics
    notes: list[str]
    reasoning: str = ""
    message: dict[str, Any] | None = None
    logprobs: list[TokenLogprobs] | None = None

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        return {
            "prompt_ids": self.prompt_ids,
            "tokens": self.tokens,
            "text": self.text,
            "reasoning": self.reasoning,
            "message": self.message,
            "logprobs": None if self.logprobs is None else [token.to_json() for token in self.logprobs],
            "finish_reason": self.finish_reason,
            "seed": self.seed,
            "stats": self.stats.to_json(),
            "notes": self.notes,
        }
