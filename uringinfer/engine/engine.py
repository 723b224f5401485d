"""A loaded model: weights in memory and on their way there, ready to make conversations and text."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.container import Container
from uringinfer.engine.conversation import Conversation
from uringinfer.engine.diagnostics import log_loaded
from uringinfer.engine.draft_model import DraftModel
from uringinfer.engine.drafts import Drafting, LookUp
from uringinfer.engine.generation import Generation, GenerationOptions, Listener
from uringinfer.engine.keywords import REQUEST_NAMES, GenerateKeywords, check_keywords, turn_options
from uringinfer.engine.prompt import Prompt, Prompter
from uringinfer.engine.routing_log import RoutingLog, dense_model
from uringinfer.engine.run import Run, Stream
from uringinfer.engine.session import Session
from uringinfer.errors import UringinferError, UsageError
from uringinfer.kernels import Kernels
from uringinfer.models.base import Floats, Model
from uringinfer.planning.memory import MemoryPlan
from uringinfer.report import Setup, Snapshot
from uringinfer.residency.checker import ReadChecker
from uringinfer.residency.expert_statistics import ExpertStatistics
from uringinfer.residency.experts import ExpertCache
from uringinfer.residency.tenure import Tenure
from uringinfer.residency.timeline import PassTimeline, Timeline
from uringinfer.residency.trace import TraceWriter
from uringinfer.residency.trunk import Trunk
from uringinfer.residency.usage import UsageCounts, read_usage, write_usage
from uringinfer.storage.reader import Reader
from uringinfer.text.rendering import Message, ReplyParser
from uringinfer.text.sampling import Sampler, SamplingOptions

_LOGITS_CHUNK = 8
"""Tokens of a pass whose logits are all wanted: what they take fits into the reserve of any plan."""
GENERATE_NAMES = frozenset(GenerateKeywords.__annotations__)


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
        self.peak_before = peak_before
        self._draft = draft
        self._drafter: DraftModel | None = None
        self.experts = experts
        self.routing = routing
        self._learned = ExpertStatistics()
        self._timeline = timeline
        self._checker = checker
        self._resources = resources
        log_loaded(plan, setup, self.notes, load_seconds)
        trunk.tenure.any_thread = reader.name != "uring"
        # an engine that is dropped, by whomever, is closed; `resources` know nothing of the engine
        self._dropped = weakref.finalize(self, give_back, trunk.tenure, resources)

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
        self.trunk.tenure.check()
        session = Session(
            self.model,
            self.trunk,
            self.container,
            context or planned,
            self.setup.chunk,
            self.setup.snapshots,
        )
        session.engine = self
        return session

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
        self.prompter.check_length(prompt, self.setup.context)
        return self.prompter.encode(prompt, raw=raw, goes_on=goes_on)

    def generate(
        self,
        prompt: Prompt,
        options: GenerationOptions | None = None,
        listener: Listener | None = None,
        *,
        session: Session | None = None,
        **keywords: Unpack[GenerateKeywords],
    ) -> Generation:
        """Generates behind `prompt`: text, in the chat format unless `raw`; messages; or token ids.

        The keywords say how: see `GenerateKeywords`. `options` are the same in one object. `session` goes on
        with a conversation, with an empty prompt too; without it, a new one is made. It also goes on with its
        sampler, unless a seed is given. An interrupt ends the turn with finish_reason "interrupted"; what was
        generated so far is kept.

        Raises UsageError for a prompt that is empty or does not fit into the context, and for a keyword that
        does not exist.
        """
        stream = self._stream(prompt, options, listener, session, keywords)
        for _ in stream:
            pass
        return stream.generation

    def stream(
        self,
        prompt: Prompt,
        options: GenerationOptions | None = None,
        listener: Listener | None = None,
        *,
        session: Session | None = None,
        **keywords: Unpack[GenerateKeywords],
    ) -> Stream:
        """`generate`, in pieces while it happens. Raises what `generate` raises, some of it at the first
        piece."""
        return self._stream(prompt, options, listener, session, keywords)

    def _stream(
        self,
        prompt: Prompt,
        options: GenerationOptions | None,
        listener: Listener | None,
        session: Session | None,
        keywords: Mapping[str, Any],
    ) -> Stream:
        check_keywords(keywords, GENERATE_NAMES, "generate")
        turn_keywords = {name: value for name, value in keywords.items() if name not in REQUEST_NAMES}
        if options is not None and turn_keywords:
            raise UsageError("options were given twice", hint="give an object or keywords, not both")
        self.trunk.resume()
        session = session or self.session()
        if isinstance(prompt, str):
            self.prompter.check_length(prompt, self.setup.context)
        ids, parser = self.prompter.prompt_ids(prompt, keywords, goes_on=session.length > 0)
        # what the model lacks for text is known only once it was given some
        self.notes += [note for note in self.prompter.notes if note not in self.notes]
        feeding = ids if session.chosen is None else [session.chosen, *ids]
        return self.run(
            session, feeding, options or turn_options(turn_keywords), listener, prompt_ids=ids, parser=parser
        )

    def run(
        self,
        session: Session,
        ids: Sequence[int],
        options: GenerationOptions,
        listener: Listener | None = None,
        *,
        prompt_ids: Sequence[int],
        parser: ReplyParser | None = None,
        on_end: Callable[[Generation], None] | None = None,
    ) -> Stream:
        """Feeds `ids`, the end of `prompt_ids`, to `session` and generates behind them; nothing happens
        before the first piece is asked for. `on_end` hears what came of it."""
        sampler = _sampler(options.sampling, session)
        run = Run(
            self,
            session,
            ids,
            options,
            listener or Listener(),
            sampler=sampler,
            prompt_ids=prompt_ids,
            parser=parser,
        )
        return Stream(run, self.interrupt, on_end or _ignore)

    def conversation(
        self,
        system: str | None = None,
        *,
        messages: Sequence[Message] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        context: int | None = None,
    ) -> Conversation:
        """A new conversation, in the model's chat format. `messages` go before the first turn.

        Raises UsageError for a model without a chat format, and as `session` does.
        """
        return Conversation(
            self, self.session(context), system=system, messages=messages, tools=tools, variables=variables
        )

    def load_conversation(self, path: Path | str, context: int | None = None) -> Conversation:
        """The conversation that `Conversation.save` wrote to `path`, to go on with.

        Raises as `load_session` does, and UsageError for a file that holds tokens alone.
        """
        session = self.session(context)
        header = session.restore(path)
        if header.messages is None:
            raise UsageError(
                f"{path} holds tokens and no messages", hint="go on with it through Engine.load_session"
            )
        return Conversation(
            self, session, messages=header.messages, tools=header.tools, variables=header.variables
        )

    def logits(self, ids: Sequence[int] | NDArray[np.int64]) -> Floats:
        """Float32 [len(ids), vocab]: what the model expects behind each token. The array that is returned is
        memory beside the budget.

        Raises UsageError for no tokens, tokens that the model does not know, or more than the context.
        """
        chunk = min(_LOGITS_CHUNK, self.setup.chunk)
        self.trunk.resume()
        session = Session(self.model, self.trunk, self.container, self.setup.context, chunk)
        return session.feed(ids, all_logits=True)

    def tokenize(self, text: str, *, control: bool = False) -> list[int]:
        """The ids of `text` as it is, behind the token that begins a text if the model has one put there;
        `control` lets the text of control tokens count.

        Raises UsageError if the model has no tokenizer.
        """
        return self.prompter.need_tokenizer().encode(text, allow_control=control)

    def read_notes(self) -> list[str]:
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
        """Waits for reads in flight and gives memory and files back; twice is harmless, as in a fork.

        From another thread it stops the call that runs, as `interrupt` does, and returns when the engine is
        closed. Raises UsageError if the thread that loaded the engine must close it and uses it no more.
        """
        self.trunk.tenure.close(self._resources.close)

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


def give_back(tenure: Tenure, resources: ExitStack) -> None:
    """Closes what a dropped engine had. Where that is not allowed any more there is nobody to tell."""
    with contextlib.suppress(UringinferError):
        tenure.close(resources.close)


def _sampler(options: SamplingOptions, session: Session) -> Sampler:
    """The session's sampler where it stood, unless the options give a seed."""
    if options.seed is not None or session.sampling is None:
        return Sampler(options)
    seed, draws = session.sampling
    return Sampler(replace(options, seed=seed), draws)


def _ignore(_: Generation) -> None:
    pass
