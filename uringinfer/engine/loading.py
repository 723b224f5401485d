"""How a model that is open is loaded: measured, planned, filled.

The order is what makes the budget true. Everything that a run needs besides weights is in memory before
anything is planned: modules, the tokenizer, the kernels with their threads. Then the process is measured,
and what is left of the budget is planned to the byte. So there are two steps: `opening.open_model` does the
first, `OpenModel.load` the second; between them a caller can turn a prompt into tokens and ask for just
enough context.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.binding import bind_codebooks
from uringinfer.container.container import Container
from uringinfer.container.manifest import Segment
from uringinfer.container.row_checksums import row_checksum_bytes
from uringinfer.engine.drafts import MOST_GUESSES
from uringinfer.engine.engine import Engine
from uringinfer.engine.expert_loading import (
    ExpertFiles,
    expert_sizes,
    learned_recall,
    learned_usage,
    usage_curve,
)
from uringinfer.engine.kernel_memory import kernel_bytes
from uringinfer.engine.load_options import CONTEXT_STEP, DEFAULT_CONTEXT, LoadOptions
from uringinfer.engine.memory import carve_trunk, peak_resident_bytes, release_unused
from uringinfer.engine.obtained import obtained
from uringinfer.engine.outputs import check_writable
from uringinfer.engine.prompt import Prompter
from uringinfer.engine.read_checks import open_checks
from uringinfer.engine.routing_log import dense_model
from uringinfer.engine.session import as_tokens, check_header, check_room
from uringinfer.engine.session_file import SessionHeader
from uringinfer.errors import BudgetError, UsageError
from uringinfer.kernels import Kernels
from uringinfer.models.base import Model
from uringinfer.planning.grants import granted
from uringinfer.planning.machine import Machine, resident_bytes
from uringinfer.planning.memory import (
    INTERPRETER_MARGIN,
    MemoryPlan,
    ModelSizes,
    default_budget,
    plan_memory,
    shares_note,
)
from uringinfer.planning.neighbours import Announcement
from uringinfer.residency.embedding import row_sizes
from uringinfer.residency.timeline import RecordingReader, Timeline
from uringinfer.residency.trunk import Trunk
from uringinfer.residency.usage import USAGE_FILE, USAGE_HINT
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import open_file
from uringinfer.storage.reader import DEFAULT_QUEUE_DEPTH, open_reader

Progress = Callable[[str, int, int], None]
"""Called with what is going on ("packing", "loading"), bytes done, bytes in all."""

GUESSES_MAY_COST = 0.01
"""What the memory of guesses may add to the bytes that a token reads, as a share."""


class OpenModel:
    """A model whose files are open and whose weights are not loaded yet. Made by `opening`.

    `opening_peak` is the most memory that opening it took, 0 if the process had more before. `is_packed`
    False: there is a layout and no container, to plan with and not to load. `cuts` are the trunk's segments
    by how they are cut, first as they are; a checkpoint that is not packed could be cut otherwise.
    `notes` are for the run's report.
    """

    def __init__(
        self,
        container: Container,
        model: Model,
        prompter: Prompter,
        kernels: Kernels,
        *,
        opening_peak: int = 0,
        is_packed: bool = True,
        cuts: Mapping[str, tuple[Segment, ...]] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.is_packed = is_packed
        self.cuts = cuts or {"as packed": container.segments}
        self.container = container
        self.model = model
        self.prompter = prompter
        prompter.most_tokens = model.max_context
        self.kernels = kernels
        self.usage, self._usage_notes = learned_usage(container)
        self._opening_peak = opening_peak
        self._interpreter_bytes: int | None = None
        self._notes = tuple(notes)

    def encode(self, prompt: str, *, raw: bool = False, goes_on: bool = False) -> list[int]:
        """The ids of a prompt; see `Engine.encode`. Raises UsageError for one that fits into no context."""
        with self._opening():
            return self.prompter.encode(prompt, raw=raw, goes_on=goes_on)

    def encode_text(self, text: str) -> NDArray[np.int32]:
        """The ids of a text, however long, without what begins one; see `Prompter.encode_text`."""
        with self._opening():
            return self.prompter.encode_text(text)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Counts the memory of what is done in it as that of opening the model, if it is the most so far."""
        before = peak_resident_bytes()
        yield
        if (peak := peak_resident_bytes()) > before:
            self._opening_peak = peak

    def check_experts(self, what: str) -> None:
        """Raises UsageError for a dense model, which has no `what`."""
        if not self.model.expert_layers():
            raise dense_model(self.container.path, what)

    def check_learning(self) -> None:
        """Raises UsageError for a dense model, EnvironmentError_ if what it learns could not be written."""
        self.check_experts("usage")
        check_writable(self.container.path / USAGE_FILE, in_one_step=True, hint=USAGE_HINT)

    def check_turn(
        self, ids: Sequence[int], options: LoadOptions, saved: tuple[Path, SessionHeader] | None = None
    ) -> None:
        """Raises UsageError unless `ids` can be fed after loading with `options`: at least one, each a token
        of this model, within the context. `saved` goes first, a session file and its header: it must be of
        this model, and needs no ids behind it."""
        context = self.context(options)
        fed = unfed = 0
        if saved is not None:
            path, header = saved
            check_header(path, header, self.model.family, self.container, context)
            fed, unfed = header.length, len(header.ids) - header.length
        if ids or saved is None:
            as_tokens(ids, self.model.vocab_size)
        check_room(fed, unfed + len(ids), context)

    def context_for(self, tokens: int) -> int:
        """A context with room for `tokens` tokens, rounded up, and at most the model's."""
        return min(self.model.max_context, -(-max(tokens, 1) // CONTEXT_STEP) * CONTEXT_STEP)

    def sizes(
        self,
        context: int,
        chunk: int,
        *,
        all_logits: bool = False,
        parallel: int = 1,
        snapshots: int = 0,
        guesses: int = 0,
        segments: Sequence[Segment] | None = None,
    ) -> ModelSizes:
        """What the model needs at this context and chunk, for the planner; `segments` as in `plan`."""
        segments = segments or self.container.segments
        rows = row_sizes(segments)
        logits = 4 * (chunk if all_logits else guesses * parallel) * self.model.vocab_size
        kept = snapshots * self.model.snapshot_bytes(context)
        trials = self.model.trial_bytes(guesses + 1) if guesses else 0
        arrays = self.model.scratch_bytes(chunk, context, parallel) + logits
        kernels = kernel_bytes(self.container.manifest, self.model, self.kernels, chunk, arrays)
        return ModelSizes.of_segments(
            segments,
            state_bytes=parallel * (self.model.state_bytes(context) + kept + trials),
            scratch_bytes=arrays + kernels + row_checksum_bytes(segments),
            staging_bytes=rows.staging_bytes,
            row_bytes=rows.row_bytes,
            experts=expert_sizes(self.container, self.model),
        )

    def interpreter_bytes(self) -> int:
        """What this process takes without weights: measured at the first call and kept, for plans that are
        compared. Each measurement grows by some pages, and so would the floor from one budget to the next."""
        if self._interpreter_bytes is None:
            release_unused()
            self._interpreter_bytes = resident_bytes()
        return self._interpreter_bytes

    def plan(
        self,
        options: LoadOptions,
        segments: Sequence[Segment] | None = None,
        *,
        interpreter_bytes: int | None = None,
    ) -> MemoryPlan:
        """Where every byte of the budget goes, for this process as it is now, or with `interpreter_bytes` of
        it in use; `segments`: if the trunk were cut into these.

        Raises BudgetError with both numbers for a budget below the floor, UsageError for a context, chunk or
        batch that cannot be.
        """
        interpreter = resident_bytes() if interpreter_bytes is None else interpreter_bytes
        plain = self._plan(options, options.guesses or 0, segments, interpreter)
        if options.guesses is not None or not plain.reads_weights:
            return plain
        try:
            guessing = self._plan(options, MOST_GUESSES, segments, interpreter)
        except BudgetError:
            return plain
        worth_it = guessing.bytes_per_token <= (1 + GUESSES_MAY_COST) * plain.bytes_per_token
        if not worth_it:
            return plain
        return replace(guessing, floor=plain.floor, overlap_floor=plain.overlap_floor)

    def _plan(
        self, options: LoadOptions, guesses: int, segments: Sequence[Segment] | None, interpreter: int
    ) -> MemoryPlan:
        context = self.context(options)
        for what, count, of in (
            ("a chunk", options.chunk, "tokens"),
            ("a batch", options.parallel, "conversations"),
            ("a pass", guesses + 1, "tokens"),
        ):
            if count < 1:
                raise UsageError(f"{what} of {count} {of} cannot be fed", hint="give 1 or more")
        sizes = self.sizes(
            context,
            self.pass_tokens(options, guesses),
            all_logits=options.all_logits,
            parallel=options.parallel,
            guesses=guesses,
            snapshots=options.snapshots,
            segments=segments,
        )
        budget = options.budget
        if budget is None:
            usable = Machine.read().usable_bytes
            default = default_budget(sizes, usable, interpreter_bytes=interpreter, margin=INTERPRETER_MARGIN)
            budget = max(default, self._opening_peak)
        plan = plan_memory(
            sizes,
            budget,
            interpreter_bytes=interpreter,
            ring_slots=options.ring_slots,
            placement=options.placement,
            trunk_budget=options.trunk_budget,
            cache_budget=options.cache_budget,
            usage=usage_curve(self.usage),
            recall=learned_recall(self.usage, options.lookahead),
            named=options.lookahead,
            opening_peak=self._opening_peak,
            margin=INTERPRETER_MARGIN,
        )
        return replace(
            plan,
            parallel=options.parallel,
            pass_tokens=self.pass_tokens(options, guesses),
            guesses=guesses,
        )

    def context(self, options: LoadOptions) -> int:
        """The context that these options mean. Raises UsageError if the model cannot have it."""
        if options.context is None:
            return min(DEFAULT_CONTEXT, self.model.max_context)
        if not 1 <= options.context <= self.model.max_context:
            raise UsageError(
                f"a context of {options.context} tokens was asked for and this model has at most"
                f" {self.model.max_context}",
                hint="give a smaller -c",
            )
        return options.context

    def chunk(self, options: LoadOptions) -> int:
        """Tokens of a prompt that a pass carries at most."""
        return min(options.chunk, self.context(options))

    def pass_tokens(self, options: LoadOptions, guesses: int) -> int:
        """Tokens that a pass carries at most: a chunk, and at least the next token of each conversation with
        its guesses."""
        return max(options.parallel * (1 + guesses), self.chunk(options))

    def load(
        self,
        options: LoadOptions | None = None,
        progress: Progress | None = None,
        draft: Engine | None = None,
    ) -> Engine:
        """Plans the memory, fills it and starts reading ahead. A budget above what this process may use is
        taken as that, with a note. `draft` is a small model, loaded already, that guesses tokens for this
        one (`draft_model.load_with_draft`); it is closed with the engine.

        Raises what `plan` raises; UsageError if the model is not packed, IntegrityError for reads that fail,
        EnvironmentError_ for a reader that was insisted on and is not there.
        """
        if not self.is_packed:
            raise UsageError(f"{self.container.path} is not packed", hint="pack it first")
        options = options or LoadOptions()
        began = time.perf_counter()
        peak_before = peak_resident_bytes()
        release_unused()
        budget, grant_notes = granted(options.budget, Machine.read())
        options = replace(options, budget=budget)
        options, plan = self._plan_with_snapshots(options)
        note = shares_note(plan, options.trunk_budget, options.cache_budget)
        grant_notes += [note] if note else []
        container = bind_codebooks(self.container)
        segments = container.segments
        with ExitStack() as stack:
            if draft is not None:
                stack.callback(draft.close)
            stack.callback(Announcement(plan.used_bytes).close)
            arena = stack.enter_context(Arena(plan.arena_bytes))
            file = stack.enter_context(open_file(self.container.trunk_path))
            banks = None
            if plan.cache is not None:
                banks = ExpertFiles(container)
                stack.callback(banks.close)
            files = [file, *(banks.files if banks else ())]
            self.container.check_unchanged({file.path: file.fd for file in files})
            # pieces of one record fill the usual queue; several drives are busy only if it holds several
            depth = DEFAULT_QUEUE_DEPTH * (banks.drives if banks else 1)
            reader = open_reader(options.io, arena=arena, files=files, queue_depth=depth)
            timeline = Timeline() if options.timeline else None
            if timeline is not None:
                reader = RecordingReader(reader, timeline)
            stack.callback(reader.close)
            checker, row_checksums = open_checks(stack, reader, self.container, options.verify_reads)
            memory = carve_trunk(arena, segments, plan)
            cache = log = None
            if banks is not None and plan.cache is not None:
                cache, log = banks.make_cache(
                    arena,
                    reader,
                    plan.cache,
                    policy=options.cache_policy,
                    lookahead=options.lookahead,
                    checker=checker,
                    poison=options.poison_slots,
                )
                stack.callback(cache.close)
            trunk = Trunk(
                segments,
                file,
                reader,
                self.kernels,
                memory,
                checker=checker,
                row_checksums=row_checksums,
                poison=options.poison_slots,
                experts=cache,
                timeline=timeline,
            )
            stack.callback(trunk.close)
            if cache is not None and self.usage is not None:
                cache.preload(self.usage.most_used(), _part(progress, "loading experts"))
            trunk.load(_part(progress, "loading"))
            return Engine(
                container=self.container,
                model=self.model,
                prompter=self.prompter,
                kernels=self.kernels,
                plan=plan,
                reader=reader,
                trunk=trunk,
                experts=cache,
                routing=log,
                timeline=timeline,
                checker=checker,
                setup=obtained(self, options, plan, arena, file, reader, trunk),
                notes=[
                    *self.prompter.notes,
                    *self.kernels.notes,
                    *self._usage_notes,
                    *self._notes,
                    *grant_notes,
                    *reader.notes,
                    *arena.notes,
                    *(banks.notes if banks else ()),
                ],
                load_seconds=time.perf_counter() - began,
                peak_before=peak_before,
                draft=draft,
                resources=stack.pop_all(),
            )

    def _plan_with_snapshots(self, options: LoadOptions) -> tuple[LoadOptions, MemoryPlan]:
        """The plan, and the options with as many of their snapshots as the budget has room for."""
        while True:
            try:
                return options, self.plan(options)
            except BudgetError:
                if not options.snapshots:
                    raise
                options = replace(options, snapshots=options.snapshots - 1)


def _part(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    """The progress of one thing."""
    return None if progress is None else lambda done, total: progress(what, done, total)
