"""A loaded model: weights in memory and on their way there, ready to make conversations and text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.container import Container
from uringinfer.engine.draft_model import DraftModel
from uringinfer.engine.drafts import Drafting, LookUp
from uringinfer.engine.generation import Generation, GenerationOptions, Listener
from uringinfer.engine.memory import peak_resident_bytes
from uringinfer.engine.prompt import Prompter
from uringinfer.engine.routing_log import RoutingLog, dense_model
from uringinfer.engine.session import Session
from uringinfer.engine.turn import Turn
from uringinfer.errors import UsageError
from uringinfer.kernels import Kernels
from uringinfer.models.base import Model
from uringinfer.planning.memory import MemoryPlan
from uringinfer.report import Phase, RunStatistics, Setup, Snapshot
from uringinfer.residency.checker import ReadChecker
from uringinfer.residency.expert_statistics import ExpertStatistics
from uringinfer.residency.experts import ExpertCache
from uringinfer.residency.timeline import PassTimeline, Timeline
from uringinfer.residency.trace import TraceWriter
from uringinfer.residency.trunk import Trunk
from uringinfer.residency.usage import UsageCounts, read_usage, write_usage
from uringinfer.storage.reader import Reader
from uringinfer.text.sampling import Sampler, SamplingOptions


class Engine:
    """A model, loaded within a budget. Made by `uringinfer.load`; `close` it, or use it in a `with`.

    `setup` tells what was asked for and what was obtained, `notes` what was not, in words. `plan` is where
    every byte of the budget goes. An engine belongs to the thread that loaded it, apart from `interrupt`.
    """

    def __init__(
        self,
        *,
        container: Container,
        model: Model,
        prompter: Prompter,
        kernels: Kernels,
        plan: MemoryPlan,
        reader: Reader,
        trunk: Trunk,
        experts: ExpertCache | None,
        routing: RoutingLog | None,
        timeline: Timeline | None,
        checker: ReadChecker | None,
        setup: Setup,
        notes: Sequence[str],
        load_seconds: float,
        peak_before: int,
        draft: Engine | None = None,
        resources: ExitStack,
    ) -> None:
        self.container = container
        self.model = model
        self.prompter = prompter
        self.plan = plan
        self.setup = setup
        self.notes = list(notes)
        self.kernels = kernels
        self.trunk = trunk
        self.reader = reader
        self.load_seconds = load_seconds
        self._peak_before = peak_before
        self._draft = draft
        self._drafter: DraftModel | None = None
        self.experts = experts
        self.routing = routing
        self._learned = ExpertStatistics()
        self._timeline = timeline
        self._checker = checker
        self._resources = resources

    def session(self, context: int | None = None) -> Session:
        """A new conversation of at most `context` tokens; None means what the plan has room for.

        The budget has room for the state of one session of the planned context. Raises UsageError for a
        longer one.
        """
        planned = self.setup.context
        if context is not None and not 1 <= context <= planned:
            raise UsageError(
                f"a context of {context} tokens was asked for and {planned} are planned",
                hint="load the model with a longer context",
            )
        return Session(
            self.model,
            self.trunk,
            self.container,
            context or planned,
            self.setup.chunk,
            self.setup.snapshots,
        )

    def load_session(self, path: Path | str, context: int | None = None) -> Session:
        """The conversation that `Session.save` wrote to `path`, to go on with.

        Raises as `session` does; UsageError if it is of another model or does not fit into the context,
        IntegrityError if the file is damaged or of another version.
        """
        session = self.session(context)
        session.restore(path)
        return session

    def encode(self, prompt: str, *, raw: bool = False, goes_on: bool = False) -> list[int]:
        """The ids of a prompt, as one user's turn in the model's chat format; `raw` leaves that out.

        `goes_on`: behind other turns. Raises UsageError if the model has no tokenizer.
        """
        return self.prompter.encode(prompt, raw=raw, goes_on=goes_on)

    def generate(
        self,
        prompt: str | Sequence[int] | NDArray[np.int64],
        options: GenerationOptions | None = None,
        listener: Listener | None = None,
        *,
        raw: bool = False,
        session: Session | None = None,
    ) -> Generation:
        """Generates after `prompt`: text (in the chat format unless `raw`) or token ids.

        `session` goes on with a conversation, with an empty prompt too; without it, a new one is made. It
        also goes on with its sampler, unless `options` give a seed. An interrupt ends the turn with
        finish_reason "interrupted"; what was generated so far is kept.

        Raises UsageError for a prompt that is empty or does not fit into the context.
        """
        options = options or GenerationOptions()
        self.trunk.resume()
        session = session or self.session()
        ids = (
            self.encode(prompt, raw=raw, goes_on=session.length > 0)
            if isinstance(prompt, str)
            else [int(token) for token in prompt]
        )
        # what the model lacks for text is known only once it was given some
        self.notes += [note for note in self.prompter.notes if note not in self.notes]
        sampler = _sampler(options.sampling, session)
        before = self.snapshot()
        moments: list[Snapshot] = []
        turn = Turn(
            session,
            self.prompter.tokenizer,
            options,
            listener or Listener(),
            on_prompt_end=lambda: moments.append(self.snapshot()),
            drafting=self.drafting(),
        )
        fed = session.length
        feeding = ids if session.chosen is None else [session.chosen, *ids]
        turn.run(feeding, sampler)
        session.sampling = (sampler.seed, sampler.draws)
        after = self.snapshot()
        prompt_end = moments[0] if moments else after
        prompt_tokens = min(len(feeding), session.length - fed)
        written = (
            None
            if after.bytes_written is None or before.bytes_written is None
            else after.bytes_written - before.bytes_written
        )
        first = turn.first_token_at
        stats = RunStatistics(
            setup=self.setup,
            prompt=Phase.between(before, prompt_end, prompt_tokens),
            decode=Phase.between(prompt_end, after, session.length - fed - prompt_tokens),
            load_seconds=self.load_seconds,
            first_token_seconds=None if first is None else first - before.seconds,
            peak_rss=peak_resident_bytes(),
            bytes_written=written,
            drafts=None if turn.drafting is None else turn.drafting.statistics,
            peak_before=self._peak_before,
        )
        return Generation(
            prompt_ids=ids,
            tokens=turn.tokens,
            text="".join(turn.pieces),
            finish_reason=turn.finish_reason,
            seed=sampler.seed,
            stats=stats,
            notes=[*self.notes, *self._read_notes(), *turn.notes, *stats.warnings()],
        )

    def _read_notes(self) -> list[str]:
        """What was read damaged and was right when it was read again."""
        return [] if self._checker is None else self._checker.notes

    def drafting(self) -> Drafting | None:
        """Guesses for a new turn; None if the plan has no room for any."""
        if not self.setup.guesses:
            return None
        if self._draft is None:
            return Drafting(LookUp(), self.setup.guesses)
        if self._drafter is None or self.setup.parallel > 1:
            self._drafter = DraftModel(self._draft)
        return Drafting(self._drafter, self.setup.guesses)

    def timeline(self, last: int) -> PassTimeline | None:
        """What a typical one of the `last` passes did when; None if the model was not loaded to record it."""
        if self._timeline is None:
            return None
        return self._timeline.typical(self.container.manifest, last)

    def interrupt(self, *, after_pass: bool = False) -> None:
        """Asks a running generation to end at the next segment, or `after_pass` when the pass that runs is
        complete: then its session stays whole. Safe in signal handlers and other threads."""
        self.trunk.interrupt(after_pass=after_pass)

    def close(self) -> None:
        """Waits for reads in flight and gives memory and files back."""
        self._resources.close()

    def trace_to(self, writer: TraceWriter) -> None:
        """Writes which experts each token uses from now on. Raises UsageError for a dense model."""
        self._routing_log("trace").writer = writer

    def end_trace(self) -> None:
        """Writes what is left of the trace; nothing is written after this."""
        log = self._routing_log("trace")
        log.end_pass()
        log.writer = None

    def learn(self) -> None:
        """Adds this engine's uses of experts, and how good its guesses were, to usage.json.

        Raises UsageError for a dense model, EnvironmentError_ if the container cannot be written.
        """
        log = self._routing_log("usage")
        path, fingerprint = self.container.path, self.container.fingerprint
        usage, _ = read_usage(path, fingerprint, log.counts.layers, log.counts.counts.shape[1])
        usage = usage or UsageCounts(log.counts.layers, log.counts.counts.shape[1])
        usage.counts += log.counts.counts
        log.counts.counts[:] = 0
        if self.experts is not None:
            guesses = self.experts.statistics()
            usage.guessed_about += guesses.recall_demanded - self._learned.recall_demanded
            usage.named += guesses.recall_named - self._learned.recall_named
            self._learned = guesses
        write_usage(path, fingerprint, usage)

    def _routing_log(self, what: str) -> RoutingLog:
        if self.routing is None:
            raise dense_model(self.container.path, what)
        return self.routing

    def snapshot(self) -> Snapshot:
        """Counters and clock as they are now; `Phase.between` two of them is what happened meanwhile."""
        experts = None if self.experts is None else self.experts.statistics()
        checks = None if self._checker is None else self._checker.statistics()
        return Snapshot.take(self.trunk.statistics(), experts, checks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sampler(options: SamplingOptions, session: Session) -> Sampler:
    """The session's sampler where it stood, unless the options give a seed."""
    if options.seed is not None or session.sampling is None:
        return Sampler(options)
    seed, draws = session.sampling
    return Sampler(replace(options, seed=seed), draws)
