"""The loop that makes text: feed the prompt, pick a token, feed it, until something ends the turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
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
    """One turn of a session while it runs: `run` does all of it alone; the other fields are what came of it.

    `steps` is the turn without its passes, so that several can share them (`engine/batch.py`): it says what
    to feed, and is given the logits. `first_token_at` is on the clock of `time.perf_counter`.
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
    _detokenizer: StreamingDetokenizer | None = None
    _stopping: StopConditions = field(default_factory=StopConditions)

    @property
    def wants_all_logits(self) -> bool:
        """Whether the listener hears the logits of every position."""
        return self.listener.logits is not None

    def run(self, prompt_ids: Sequence[int], sampler: Sampler) -> None:
        """Feeds the prompt and generates; an empty prompt goes on behind what the session was fed. An
        interrupt ends the turn and keeps what there is."""
        steps = self.steps(prompt_ids, sampler)
        try:
            ids = next(steps)
            while True:
                ids = steps.send(self._feed(ids))
        except StopIteration:
            return
        except Interrupted:
            self.interrupt()

    def steps(self, prompt_ids: Sequence[int], sampler: Sampler) -> Generator[Sequence[int], Floats, None]:
        """Yields the tokens to feed next, one or more, and is sent the logits [vocab] behind the last of
        them, until the turn has ended."""
        eos_ids = self.tokenizer.eos_ids if self.tokenizer and not self.options.ignore_eos else ()
        stopping = self._stopping = StopConditions(
            eos_ids=eos_ids, stop=self.options.stop, max_tokens=self.options.max_tokens
        )
        self._detokenizer = detokenizer = StreamingDetokenizer(self.tokenizer) if self.tokenizer else None
        logits = self.session.last_logits
        if len(prompt_ids) or logits is None:
            logits = yield prompt_ids
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
                logits = yield [token]
        self._end(stopping.finish_reason or "length")

    def interrupt(self) -> None:
        """Ends the turn where it is."""
        self._end("interrupted")

    def fed(self, logits: Floats, done: int, total: int) -> None:
        """Tells the listener of a pass that fed up to `done` of the `total` tokens of a step; logits
        [n, vocab] are those of its positions, if `wants_all_logits`."""
        if self.listener.logits is not None:
            self.listener.logits(logits)
        if self.listener.prompt is not None and not self.tokens:
            self.listener.prompt(done, total)

    def _feed(self, ids: Sequence[int]) -> Floats:
        before = self.session.length
        for logits in self.session.passes(ids, all_logits=self.wants_all_logits):
            self.fed(logits, self.session.length - before, len(ids))
        last: Floats = logits[-1]
        return last

    def _end(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        self._show(self._stopping.finish(self._detokenizer.finish() if self._detokenizer else ""))

    def _show(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            if self.listener.text is not None:
                self.listener.text(text)
