"""The loop that makes text: feed the prompt, pick a token, feed it, until something ends the turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from uringinfer.engine.session import Session
from uringinfer.errors import Interrupted
from uringinfer.models.base import Floats
from uringinfer.report import RunStatistics
from uringinfer.text.detokenizer import StreamingDetokenizer
from uringinfer.text.sampling import Sampler, SamplingOptions
from uringinfer.text.stopping import StopConditions
from uringinfer.text.tokenizer import Tokenizer

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


@dataclass(slots=True)
class Turn:
    """One turn of a session while it runs: `run` does all of it; the other fields are what came of it.

    `prompt_ended` and `first_token_at` are on the clock of `time.perf_counter`.
    """

    session: Session
    tokenizer: Tokenizer | None
    options: GenerationOptions
    listener: Listener
    on_prompt_end: Callable[[], None]
    tokens: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    finish_reason: FinishReason = "length"
    first_token_at: float | None = None
    notes: list[str] = field(default_factory=list)

    def run(self, prompt_ids: Sequence[int], sampler: Sampler) -> None:
        """Feeds the prompt and generates; an empty prompt goes on behind what the session was fed. An
        interrupt ends the turn and keeps what there is."""
        eos_ids = self.tokenizer.eos_ids if self.tokenizer and not self.options.ignore_eos else ()
        stopping = StopConditions(eos_ids=eos_ids, stop=self.options.stop, max_tokens=self.options.max_tokens)
        detokenizer = StreamingDetokenizer(self.tokenizer) if self.tokenizer else None
        try:
            logits = self._read_prompt(prompt_ids)
            self.on_prompt_end()
            while stopping.finish_reason is None:
                token = sampler.pick(logits, self.session.fed)
                self.session.chosen = token
                self.first_token_at = self.first_token_at or time.perf_counter()
                self.tokens.append(token)
                self._show(stopping.push(token, detokenizer.push(token) if detokenizer else ""))
                if stopping.finish_reason is None and self.session.length == self.session.context:
                    self.notes.append(f"the context of {self.session.context} tokens is full")
                    break
                if stopping.finish_reason is None:
                    logits = self._feed(token)
            self.finish_reason = stopping.finish_reason or "length"
        except Interrupted:
            self.finish_reason = "interrupted"
        self._show(stopping.finish(detokenizer.finish() if detokenizer else ""))

    def _read_prompt(self, prompt_ids: Sequence[int]) -> Floats:
        if not len(prompt_ids) and self.session.last_logits is not None:
            return self.session.last_logits
        fed = self.session.length
        for logits in self.session.passes(prompt_ids, all_logits=self.listener.logits is not None):
            if self.listener.logits is not None:
                self.listener.logits(logits)
            if self.listener.prompt is not None:
                self.listener.prompt(self.session.length - fed, len(prompt_ids))
        last: Floats = logits[-1]
        return last

    def _feed(self, token: int) -> Floats:
        logits = self.session.step(token)
        if self.listener.logits is not None:
            self.listener.logits(logits[None])
        return logits

    def _show(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            if self.listener.text is not None:
                self.listener.text(text)
