"""One generation from its first token fed to its statistics, as pieces while it happens."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Self

from uringinfer.engine.generation import Generation, GenerationOptions, Listener, Piece
from uringinfer.engine.memory import peak_resident_bytes
from uringinfer.engine.session import Session
from uringinfer.engine.turn import Turn
from uringinfer.errors import UsageError
from uringinfer.report import Phase, RunStatistics, Snapshot
from uringinfer.text.rendering import ReplyParser
from uringinfer.text.sampling import Sampler

if TYPE_CHECKING:
    from uringinfer.engine.engine import Engine


class Run:
    """Feeds `ids` to `session` and generates behind them. `prompt_ids` are what the prompt is in all, of
    which the session may have been fed a part before."""

    def __init__(
        self,
        engine: Engine,
        session: Session,
        ids: Sequence[int],
        options: GenerationOptions,
        listener: Listener,
        *,
        sampler: Sampler,
        prompt_ids: Sequence[int],
        parser: ReplyParser | None = None,
    ) -> None:
        self._engine = engine
        self._session = session
        self._ids = ids
        self._prompt_ids = list(prompt_ids)
        self._sampler = sampler
        self._before = engine.snapshot()
        self._prompt_end: Snapshot | None = None
        self._fed = session.length
        self.turn = Turn(
            session,
            engine.prompter.tokenizer,
            options,
            listener,
            on_prompt_end=self._end_prompt,
            drafting=engine.drafting(),
            parser=None if options.ignore_eos else parser,
        )

    def pieces(self) -> Iterator[Piece]:
        """What was generated, as it comes. Leaving it early ends the turn and keeps what there is."""
        turn = self.turn
        tokens = texts = 0
        try:
            for _ in turn.passes(self._ids, self._sampler):
                yield from self._news(tokens, texts)
                tokens, texts = len(turn.tokens), len(turn.pieces)
        finally:
            self._session.sampling = (self._sampler.seed, self._sampler.draws)
        yield from self._news(tokens, texts)

    def generation(self) -> Generation:
        """What came of it."""
        engine, turn = self._engine, self.turn
        stats = self._statistics()
        return Generation(
            prompt_ids=self._prompt_ids,
            tokens=turn.tokens,
            text=turn.shown("answer"),
            reasoning=turn.shown("reasoning"),
            message=turn.message(),
            logprobs=None if turn.options.logprobs is None else turn.logprobs,
            finish_reason=turn.finish_reason,
            seed=self._sampler.seed,
            stats=stats,
            notes=[*engine.notes, *engine.read_notes(), *turn.notes, *stats.warnings()],
        )

    def _news(self, tokens: int, texts: int) -> Iterator[Piece]:
        """The tokens and texts that came behind the first so many."""
        turn = self.turn
        ids, logprobs = tuple(turn.tokens[tokens:]), tuple(turn.logprobs[tokens:])
        shown = list(zip(turn.pieces[texts:], turn.kinds[texts:], strict=True))
        for text, kind in shown[:-1]:
            yield Piece(text, kind)
        if shown or ids:
            text, kind = shown[-1] if shown else ("", "answer")
            yield Piece(text, kind, ids, logprobs)

    def _end_prompt(self) -> None:
        self._prompt_end = self._engine.snapshot()
        self._session.mark()

    def _statistics(self) -> RunStatistics:
        engine, before = self._engine, self._before
        after = engine.snapshot()
        prompt_end = self._prompt_end or after
        prompt_tokens = max(0, min(len(self._ids), self._session.length - self._fed))
        written = (
            None
            if after.bytes_written is None or before.bytes_written is None
            else after.bytes_written - before.bytes_written
        )
        first = self.turn.first_token_at
        return RunStatistics(
            setup=engine.setup,
            prompt=Phase.between(before, prompt_end, prompt_tokens),
            decode=Phase.between(prompt_end, after, self._session.length - self._fed - prompt_tokens),
            load_seconds=engine.load_seconds,
            first_token_seconds=None if first is None else first - before.seconds,
            peak_rss=peak_resident_bytes(),
            bytes_written=written,
            drafts=None if self.turn.drafting is None else self.turn.drafting.statistics,
            peak_before=engine.peak_before,
        )


class _Ending:
    """What comes of a run, told once. No part of the stream: nothing may keep one alive that was left."""

    def __init__(self, run: Run, on_end: Callable[[Generation], None]) -> None:
        self.generation: Generation | None = None
        self._run = run
        self._on_end = on_end

    def tell(self) -> None:
        if self.generation is None:
            self.generation = self._run.generation()
            self._on_end(self.generation)


def _told(run: Run, ending: _Ending) -> Generator[Piece, None, None]:
    try:
        yield from run.pieces()
    finally:
        ending.tell()


class Stream(Iterator[Piece]):
    """The pieces of one generation, made as they are asked for, in the thread that asks.

    Leaving it early (`break`, `close`, the end of a `with`) ends the turn: between two passes at once, and
    from another thread within one segment of the pass that runs. What there is then is kept, and the engine
    answers the next call. `generation` is what came of it, once it is over.
    """

    def __init__(self, run: Run, interrupt: Callable[[], None], on_end: Callable[[Generation], None]) -> None:
        self._run = run
        self._interrupt = interrupt
        self._ending = _Ending(run, on_end)
        self._pieces = _told(run, self._ending)
        self._is_in_pass = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Piece:
        self._is_in_pass = True
        try:
            return next(self._pieces)
        finally:
            self._is_in_pass = False

    def close(self) -> None:
        """Ends the turn where it is; does nothing if it is over. Safe in other threads."""
        if self._is_in_pass:
            self._interrupt()
            return
        self._pieces.close()
        if self._ending.generation is None:  # nothing was asked for yet
            self._run.turn.interrupt()
            self._ending.tell()

    @property
    def generation(self) -> Generation:
        """Raises UsageError while there are pieces to come."""
        if self._ending.generation is None:
            raise UsageError("the stream is not over", hint="take all its pieces first, or close it")
        return self._ending.generation

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
