"""The loop that makes text: feed the prompt, pick a token, feed it, until something ends the turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from uringinfer.engine.drafts import Drafting
from uringinfer.engine.generation import FinishReason, GenerationOptions, Listener
from uringinfer.engine.session import Session
from uringinfer.errors import Interrupted
from uringinfer.models.base import Floats
from uringinfer.text.constraints import constrain
from uringinfer.text.detokenizer import StreamingDetokenizer
from uringinfer.text.logprobs import TokenLogprobs, read_logprobs
from uringinfer.text.rendering import ReplyEvent, ReplyKind, ReplyParser
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
    `parser` tells the parts of a reply apart; `kinds` says what each of `pieces` belongs to.
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
    kinds: list[ReplyKind] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    parser: ReplyParser | None = None
    finish_reason: FinishReason = "length"
    first_token_at: float | None = None
    notes: list[str] = field(default_factory=list)
    _detokenizer: StreamingDetokenizer | None = None
    _stopping: StopConditions = field(default_factory=StopConditions)
    _unshown: deque[tuple[ReplyKind, int]] = field(default_factory=deque)
    """What the text that is held back consists of: kinds with their numbers of characters."""

    @property
    def stop_string(self) -> str | None:
        """The stop text that ended the turn, if one did."""
        return self._stopping.stop_string

    @property
    def wants_all_logits(self) -> bool:
        """Whether the listener hears the logits of every position."""
        return self.listener.logits is not None

    def run(self, prompt_ids: Sequence[int], sampler: Sampler) -> None:
        """Feeds the prompt and generates; an empty prompt goes on behind what the session was fed. An
        interrupt ends the turn and keeps what there is."""
        for _ in self.passes(prompt_ids, sampler):
            pass

    def passes(self, prompt_ids: Sequence[int], sampler: Sampler) -> Iterator[None]:
        """`run`, a pass at a time: yields after each. Whoever leaves it there ends the turn."""
        steps = self.steps(prompt_ids, sampler)
        try:
            feed = next(steps)
            while True:
                logits = yield from self._feed(feed)
                feed = steps.send(logits)
        except StopIteration:
            return
        except Interrupted:
            self.interrupt()
        except BaseException:
            self.interrupt()
            raise

    def steps(self, prompt_ids: Sequence[int], sampler: Sampler) -> Generator[Feed, Floats, None]:
        """Yields what to feed next, and is sent the logits, float32 [guesses + 1, vocab], behind the last
        token that is no guess and behind each guess, until the turn has ended."""
        stopping = self._stopping = StopConditions(
            eos_ids=self._end_ids(), stop=self.options.stop, max_tokens=self.options.max_tokens
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
            behind = session.fed if not guesses else session.fed[: fed + right]
            token = sampler.pick(self._constrained(logits[right]), behind)
            self._took(token, logits[right])
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

    def _feed(self, feed: Feed) -> Generator[None, None, Floats]:
        if feed.guesses:
            logits = self.session.try_out(feed.ids)
            yield
            return logits
        before = self.session.length
        for logits in self.session.passes(feed.ids, all_logits=self.wants_all_logits):
            self.fed(logits, self.session.length - before, len(feed.ids))
            yield
        return logits[-1:]

    def _end_ids(self) -> frozenset[int]:
        """The tokens that end the turn: the model's own, and special ones that `stop` names."""
        if self.tokenizer is None:
            return frozenset()
        stop = (self.options.stop,) if isinstance(self.options.stop, str) else self.options.stop
        named = {self.tokenizer.id_of(text) for text in stop} & self.tokenizer.special_ids
        own = frozenset() if self.options.ignore_eos else self.tokenizer.eos_ids
        return own | {token for token in named if token is not None}

    def _constrained(self, logits: Floats) -> Floats:
        options = self.options
        if options.mask is None and not options.logit_bias:
            return logits
        allowed = None if options.mask is None else options.mask(tuple(self.tokens))
        return constrain(logits, options.logit_bias, allowed)

    def _guesses(self, token: int, sampler: Sampler, right: int) -> Sequence[int]:
        """Guesses of what follows `token`, after so many of the last ones were right."""
        if self.drafting is None:
            return ()
        self.drafting.judge(right)
        wanted = min(self.drafting.most, self.options.max_tokens - len(self.tokens) - 1)
        most = self.session.most_guesses(max(0, wanted))
        return self.drafting.guess(self.session.fed, token, most, sampler)

    def _took(self, token: int, logits: Floats) -> None:
        self.session.chosen = token
        self.first_token_at = self.first_token_at or time.perf_counter()
        self.tokens.append(token)
        if self.options.logprobs is not None:
            self.logprobs.append(read_logprobs(logits, token, self.options.logprobs))
        if self.parser is not None:
            text = self._noted(self.parser.feed(token))
        else:
            text = self._detokenizer.push(token) if self._detokenizer else ""
        self._show(self._stopping.push(token, text))

    def _end(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        if self.parser is not None:
            text = self._noted(self.parser.finish())
        else:
            text = self._detokenizer.finish() if self._detokenizer else ""
        self._show(self._stopping.finish(text))

    def _noted(self, events: Sequence[ReplyEvent]) -> str:
        """The events' text, whose kinds are kept until it is shown."""
        self._unshown += ((event.kind, len(event.text)) for event in events)
        return "".join(event.text for event in events)

    def _show(self, text: str) -> None:
        while text:
            kind, count = self._unshown.popleft() if self._unshown else ("answer", len(text))
            if count > len(text):
                self._unshown.appendleft((kind, count - len(text)))
            shown, text = text[:count], text[count:]
            if shown:
                self.pieces.append(shown)
                self.kinds.append(kind)
                if self.listener.text is not None:
                    self.listener.text(shown)

    def shown(self, *kinds: ReplyKind) -> str:
        """What was shown of these kinds."""
        return "".join(text for text, kind in zip(self.pieces, self.kinds, strict=True) if kind in kinds)

    def message(self) -> dict[str, Any] | None:
        """The reply as a message, None without a chat format. A stop text ends it in front of itself."""
        if self.parser is None:
            return None
        message = self.parser.message()
        if self.stop_string is None:
            return message
        message.pop("tool_calls", None)
        return message | {"content": self.shown("answer")}
