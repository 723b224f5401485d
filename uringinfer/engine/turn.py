"""The loop that makes text: feed the prompt, pick a token, feed it, until something ends the turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from uringinfer.engine.drafts import Drafting
from uringinfer.engine.generation import FinishReason, GenerationOptions, Listener
from uringinfer.engine.session import Session
from uringinfer.errors import Interrupted
from uringinfer.models.base import Floats
from uringinfer.text.detokenizer import StreamingDetokenizer
from uringinfer.text.sampling import Sampler
from uringinfer.text.stopping import StopConditions
from uringinfer.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Feed:
    """What a turn wants fed: `ids`, one or more. The last `guesses` of them are guesses, which go in one pass
    with what stands before them; the logits behind each of them are wanted then."""

    ids: Sequence[int]
    guesses: int = 0


@dataclass(slots=True)
class Turn:
    """One turn of a session while it runs: `run` does all of it alone; the other fields are what came of it.

    `steps` is the turn without its passes, so that several can share them (`engine/batch.py`): it says what
    to feed, and is given the logits. `drafting` guesses tokens ahead; it changes no token.
    `first_token_at` is on the clock of `time.perf_counter`.
    """

    session: Session
    tokenizer: Tokenizer | None
    options: GenerationOptions
    listener: Listener
    on_prompt_end: Callable[[], None]
    drafting: Drafting | None = None
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
            feed = next(steps)
            while True:
                feed = steps.send(self._feed(feed))
        except StopIteration:
            return
        except Interrupted:
            self.interrupt()

    def steps(self, prompt_ids: Sequence[int], sampler: Sampler) -> Generator[Feed, Floats, None]:
        """Yields what to feed next, and is sent the logits, float32 [guesses + 1, vocab], behind the last
        token that is no guess and behind each guess, until the turn has ended."""
        eos_ids = self.tokenizer.eos_ids if self.tokenizer and not self.options.ignore_eos else ()
        stopping = self._stopping = StopConditions(
            eos_ids=eos_ids, stop=self.options.stop, max_tokens=self.options.max_tokens
        )
        self._detokenizer = StreamingDetokenizer(self.tokenizer) if self.tokenizer else None
        session = self.session
        if len(prompt_ids) or session.last_logits is None:
            logits = yield Feed(prompt_ids)
        else:
            logits = session.last_logits[None]
        self.on_prompt_end()
        guesses: Sequence[int] = ()
        right, fed = 0, session.length  # of the guesses; positions that stay, whether or not one is right
        while stopping.finish_reason is None:
            token = sampler.pick(logits[right], session.fed if not guesses else session.fed[: fed + right])
            self._took(token)
            if stopping.finish_reason is not None:
                break
            if fed + right == session.context:
                self.notes.append(f"the context of {session.context} tokens is full")
                break
            if right < len(guesses) and guesses[right] == token:
                right += 1
            else:
                session.settle(fed + right, logits[right])
                session.chosen = token
                guesses = self._guesses(token, sampler, right)
                logits = yield Feed([token, *guesses], len(guesses))
                right, fed = 0, session.length - len(guesses)
            if self.listener.logits is not None:
                self.listener.logits(logits[right : right + 1])
        session.settle(fed + right, logits[right])
        if self.drafting is not None:
            self.drafting.judge(right)
        self._end(stopping.finish_reason or "length")

    def interrupt(self) -> None:
        """Ends the turn where it is."""
        self._end("interrupted")

    def fed(self, logits: Floats, done: int, total: int) -> None:
        """Tells the listener of a pass that fed up to `done` of the prompt's `total` tokens; logits
        [n, vocab] are those of its positions, if `wants_all_logits`."""
        if self.tokens:
            return
        if self.listener.logits is not None:
            self.listener.logits(logits)
        if self.listener.prompt is not None:
            self.listener.prompt(done, total)

    def _feed(self, feed: Feed) -> Floats:
        if feed.guesses:
            return self.session.try_out(feed.ids)
        before = self.session.length
        for logits in self.session.passes(feed.ids, all_logits=self.wants_all_logits):
            self.fed(logits, self.session.length - before, len(feed.ids))
        return logits[-1:]

    def _guesses(self, token: int, sampler: Sampler, right: int) -> Sequence[int]:
        """Guesses of what follows `token`, after so many of the last ones were right."""
        if self.drafting is None:
            return ()
        self.drafting.judge(right)
        wanted = min(self.drafting.most, self.options.max_tokens - len(self.tokens) - 1)
        most = self.session.most_guesses(max(0, wanted))
        return self.drafting.guess(self.session.fed, token, most, sampler)

    def _took(self, token: int) -> None:
        self.session.chosen = token
        self.first_token_at = self.first_token_at or time.perf_counter()
        self.tokens.append(token)
        text = self._detokenizer.push(token) if self._detokenizer else ""
        self._show(self._stopping.push(token, text))

    def _end(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        self._show(self._stopping.finish(self._detokenizer.finish() if self._detokenizer else ""))

    def _show(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            if self.listener.text is not None:
                self.listener.text(text)
