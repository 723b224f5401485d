"""Many requests, answered a few at a time by one batch: the job that is otherwise scripted around an engine.

Requests wait in their order; as many as the engine has room for run, and share passes. An answer comes as
soon as it is whole, so answers overtake one another. A request that cannot be answered says so in its answer
and touches no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uringinfer.engine.batch import Batch, Rider
from uringinfer.engine.engine import Engine
from uringinfer.engine.generation import FinishReason, GenerationOptions, Listener
from uringinfer.engine.kept_sessions import KeptSessions, SwapStatistics
from uringinfer.engine.session import as_tokens
from uringinfer.engine.turn import Turn
from uringinfer.errors import UringinferError
from uringinfer.report import Phase
from uringinfer.text.rendering import ReplyParser
from uringinfer.text.sampling import Sampler
from uringinfer.units import format_size

Progress = Callable[[int, int, int], None]
"""Called after each pass with (requests answered, requests under way, tokens generated)."""


@dataclass(frozen=True, slots=True)
class Request:
    """Token ids to go on from, and how; `parser` reads the reply, if there is a chat format."""

    ids: Sequence[int]
    options: GenerationOptions = field(default_factory=GenerationOptions)
    parser: ReplyParser | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of request `number`, counted from 0; as in `Generation`. `error` says why there is no more
    of it; `finish_reason` is "error" then."""

    number: int
    prompt_ids: list[int]
    tokens: list[int]
    text: str
    finish_reason: FinishReason | str
    seed: int | None
    notes: list[str]
    error: UringinferError | None = None
    reasoning: str = ""

    def to_json(self) -> dict[str, Any]:
        """Without its number: whoever asked knows the request by a name of his own."""
        found: dict[str, Any] = {
            "prompt_tokens": len(self.prompt_ids),
            "tokens": self.tokens,
            "text": self.text,
            "finish_reason": self.finish_reason,
            "seed": self.seed,
            "notes": self.notes,
        }
        if self.reasoning:
            found["reasoning"] = self.reasoning
        return found if self.error is None else found | {"error": str(self.error)}


@dataclass(slots=True)
class BatchStatistics:
    """What all requests together took; grows while they run. `phase` is None before the first pass."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    phase: Phase | None = None
    swap: SwapStatistics = field(default_factory=SwapStatistics)

    def to_text(self) -> str:
        """A line for a person; empty before the first answer."""
        phase = self.phase
        if phase is None or not phase.passes:
            return ""
        tokens = self.prompt_tokens + self.generated_tokens
        swapped = self.swap.to_text()
        per_token = format_size(round(phase.bytes_read / max(1, self.generated_tokens)))
        return (
            f"{self.prompt_tokens} prompt tokens read and {self.generated_tokens} generated in"
            f" {phase.seconds:.2f} s, {self.generated_tokens / phase.seconds:.2f} tokens/s;"
            f" {phase.passes} passes, {tokens / phase.passes:.2f} tokens each,"
            f" {per_token} read per generated token" + (f"\n{swapped}" if swapped else "")
        )


def answer_all(
    engine: Engine,
    requests: Iterable[Request],
    *,
    statistics: BatchStatistics | None = None,
    progress: Progress | None = None,
    swap: Path | None = None,
) -> Iterator[Answer]:
    """Answers `requests`, as many at a time as the engine was loaded for (`LoadOptions.parallel`).

    A request that begins as an earlier one did is fed only from where it goes on; conversations that make
    room go to the directory `swap`, if there is one (`engine/kept_sessions.py`). `requests` may be endless:
    one is taken when there is room for it. Raises what makes a pass fail for all (IntegrityError), and
    Interrupted; what is under way is lost then, what was answered is not.
    """
    statistics = statistics if statistics is not None else BatchStatistics()
    batch = Batch(engine.setup.parallel, engine.setup.pass_tokens)
    kept = KeptSessions(engine.session, engine.setup.parallel, swap, statistics.swap)
    waiting = enumerate(requests)
    under_way: dict[Rider, tuple[int, Request]] = {}
    engine.trunk.resume()
    before = engine.snapshot()
    answered, asked_for_more = 0, True
    while asked_for_more or under_way:
        while asked_for_more and batch.has_room:
            found = next(waiting, None)
            if found is None:
                asked_for_more = False
                break
            number, request = found
            joined = _join(engine, batch, kept, number, request)
            if isinstance(joined, Answer):
                answered += 1
                yield joined
            else:
                under_way[joined] = (number, request)
        batch.run_pass()
        for rider in [rider for rider in under_way if rider.is_over]:
            number, request = under_way.pop(rider)
            kept.give(rider.turn.session)
            answered += 1
            statistics.prompt_tokens += len(request.ids)
            statistics.generated_tokens += len(rider.turn.tokens)
            statistics.phase = _phase(engine, before, statistics)
            yield _answer(number, request, rider)
        if progress is not None:
            running = sum(len(rider.turn.tokens) for rider in under_way)
            progress(answered, len(under_way), statistics.generated_tokens + running)
    kept.keep_all()


def _join(engine: Engine, batch: Batch, kept: KeptSessions, number: int, request: Request) -> Rider | Answer:
    """The request under way, or why it cannot be."""
    sampler = Sampler(request.options.sampling)
    try:
        session = kept.take(as_tokens(request.ids, engine.model.vocab_size).tolist())
    except UringinferError as error:
        return Answer(number, list(request.ids), [], "", "error", None, [], error)
    try:
        turn = Turn(
            session,
            engine.prompter.tokenizer,
            request.options,
            Listener(),
            on_prompt_end=session.mark,
            drafting=engine.drafting(),
            parser=None if request.options.ignore_eos else request.parser,
        )
        rider = batch.join(turn, request.ids[session.length :], sampler)
    except UringinferError as error:
        kept.drop()
        return Answer(number, list(request.ids), [], "", "error", None, [], error)
    if rider.is_over:
        kept.give(session)
        return _answer(number, request, rider)
    return rider


def _answer(number: int, request: Request, rider: Rider) -> Answer:
    turn = rider.turn
    return Answer(
        number,
        list(request.ids),
        turn.tokens,
        turn.shown("answer"),
        turn.finish_reason if rider.error is None else "error",
        rider.sampler.seed,
        turn.notes,
        rider.error,
        turn.shown("reasoning"),
    )


def _phase(engine: Engine, before: Any, statistics: BatchStatistics) -> Phase:
    return Phase.between(before, engine.snapshot(), statistics.prompt_tokens + statistics.generated_tokens)
