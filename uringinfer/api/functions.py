"""The public functions that need the engine: load, plan, tokenize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict, Unpack, get_args

from uringinfer.bench.measure import Measurement
from uringinfer.bench.workload import Workload
from uringinfer.diagnosis.read_clock import clock_latency, clock_reads
from uringinfer.engine.compute_clock import clock_compute, sample_within
from uringinfer.engine.engine import Engine
from uringinfer.engine.generation import Generation
from uringinfer.engine.keywords import check_keywords
from uringinfer.engine.load_options import DEFAULT_LOOKAHEAD, LoadOptions
from uringinfer.engine.loading import OpenModel, Progress
from uringinfer.engine.opening import Announce, open_model, open_to_plan
from uringinfer.engine.outlook import Outlook, outlook_of
from uringinfer.engine.prompt import Prompter
from uringinfer.pages.run_page import write_page
from uringinfer.planning.planner import Placement
from uringinfer.planning.rates import Rates
from uringinfer.residency.policies import ONLINE_POLICIES
from uringinfer.storage.direct import open_file
from uringinfer.storage.reader import ReaderKind
from uringinfer.text.rendering import Message
from uringinfer.units import parse_size

DEFAULT_SNAPSHOTS = 2
"""Places that a conversation of an engine made by `load` can go back to, if its state needs that."""


class PlanKeywords(TypedDict, total=False):
    """What a plan depends on; see `LoadOptions`. Sizes are bytes, or text such as "8G"."""

    budget: int | str | None
    trunk_budget: int | str | None
    cache_budget: int | str | None
    context: int | None
    chunk: int
    placement: Placement
    ring_slots: int
    parallel: int
    guesses: int | None
    snapshots: int
    all_logits: bool


class LoadKeywords(PlanKeywords, total=False):
    """How a model is loaded; see `load`."""

    io: ReaderKind
    verify_reads: bool
    cache_policy: str
    lookahead: int
    timeline: bool
    threads: int | None
    native: bool | None
    experts_per_token: int | None
    pack_dir: str | Path | None
    chat_template: str | Path | None
    progress: Progress | None
    announce: Announce | None


_PLANNED = frozenset(PlanKeywords.__annotations__)
_LOADED = frozenset(LoadKeywords.__annotations__)
_OPTIONS = frozenset(field.name for field in fields(LoadOptions))
_CHOICES: Mapping[str, Sequence[str]] = {
    "io": get_args(ReaderKind),
    "placement": get_args(Placement),
    "cache_policy": ONLINE_POLICIES,
}


def load(path: str | Path, **keywords: Unpack[LoadKeywords]) -> Engine:
    """Loads the model at `path`: a container, or a checkpoint directory or GGUF file, which is packed first.

    `budget` bounds the memory of the whole process, in bytes or as "8G"; None takes what the machine grants.
    `trunk_budget` and `cache_budget` divide it by hand, `cache_policy` and `lookahead` say how experts are
    kept and guessed. `context` is the room for tokens, of each of `parallel` conversations; `chunk` how many
    tokens of a prompt go in one pass; `guesses` how many are checked ahead; `snapshots` how many places a
    conversation can go back to where its state forgets. `all_logits` leaves room for the logits of every
    position. `io`, `placement`, `ring_slots`: how weights are read and pinned. `verify_reads` checks
    everything that is read before it is used; leaving that out saves next to nothing. `native` None uses the
    C kernels if they are there, on `threads` threads. `experts_per_token` changes answers. `pack_dir` is
    where a checkpoint is packed, `chat_template` a Jinja file in the place of the model's own. `progress` is
    called with (what, bytes done, bytes in all), `announce` with a line before something long that was not
    asked for, which is packing. `timeline` records what the last passes did when.

    Raises BudgetError below the model's floor, UnsupportedModelError for a model that this package does not
    run, IntegrityError for damaged files, UsageError for options that cannot be or do not exist.
    """
    check_keywords(keywords, _LOADED, "load", _CHOICES)
    given: dict[str, Any] = {"snapshots": DEFAULT_SNAPSHOTS, **keywords}
    options = LoadOptions(**{name: value for name, value in given.items() if name in _OPTIONS})
    opening = {name: value for name, value in given.items() if name not in _OPTIONS}
    for name in ("pack_dir", "chat_template"):
        if opening.get(name) is not None:
            opening[name] = Path(opening[name])
    return open_model(path, **opening).load(options, keywords.get("progress"))


def plan(path: str | Path, *, rates: Rates | None = None, **keywords: Unpack[PlanKeywords]) -> Outlook:
    """Where the memory would go if `load` loaded the model at `path` so; a checkpoint is planned as it would
    be packed, and nothing is written. `rates` are what a drive and a processor give, to predict speed.

    Raises what `load` raises before it reads weights: BudgetError below the floor, for one.
    """
    check_keywords(keywords, _PLANNED, "plan", _CHOICES)
    return outlook_of(open_to_plan(path), LoadOptions(**keywords), rates or Rates())  # type: ignore[arg-type]


def tokenize(
    path: str | Path,
    prompt: str | Sequence[Message],
    *,
    control: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    chat_template: str | Path | None = None,
) -> list[int]:
    """The ids of a text as it is, or of messages in the chat format of the model at `path`; no weights are
    read. `control` lets the text of control tokens count.

    Raises UsageError if the model has no tokenizer, or no chat format that messages could be put into.
    """
    prompter = Prompter.of_model(Path(path), None if chat_template is None else Path(chat_template))
    if isinstance(prompt, str):
        return prompter.need_tokenizer().encode(prompt, allow_control=control)
    return prompter.render(prompt, {"tools": tools, "variables": variables or {}})[0]


def measure_rates(
    opened: OpenModel,
    seconds: float = 2.0,
    progress: Progress | None = None,
    *,
    budget: int | str | None = None,
) -> Rates:
    """Clocks the drive, and passes on the model's own weights: about `seconds` each, with experts twice as
    long for the passes.

    The sample of weights is as large as fits into `budget`, or what this process may use. `progress` is
    called with (what, clocks done, in all). The drive's rate is None for a trunk that is too short to be
    clocked. Raises IntegrityError for reads that fail, BudgetError if not the smallest sample fits.
    """
    container = opened.container
    sample_bytes = sample_within(opened, parse_size(budget) if isinstance(budget, str) else budget)
    if progress is not None:
        progress("clocking", 0, 2)
    with open_file(container.trunk_path) as file:
        reads = clock_reads(file, seconds)
        latency = clock_latency(file, seconds / 10)
    if progress is not None:
        progress("clocking", 1, 2)
    spent = clock_compute(
        container,
        opened.model,
        opened.kernels,
        seconds,
        lookahead=DEFAULT_LOOKAHEAD,
        sample_bytes=sample_bytes,
    )
    record = max((bank.record_bytes for bank in container.manifest.banks), default=0)
    return Rates(
        drive=None if reads is None else reads.bytes_per_second,
        compute=container.streamed_bytes / spent.trunk,
        expert_compute=record / spent.expert if spent.expert else None,
        streamed_compute=1 / (spent.trunk / container.streamed_bytes + spent.streamed),
        latency=latency,
        guess=spent.guess if record else None,
        per_read=spent.read if record else None,
        drive_origin="clocked",
        latency_origin="clocked",
        compute_origin="clocked",
    )


def write_run_page(path: Path, engine: Engine, generation: Generation) -> None:
    """Writes the report of a generation by `engine` as one HTML file: of its decoding, or else of its prompt.

    It has a timeline if the engine was loaded with `LoadOptions.timeline`. Raises UsageError for a generation
    that fed nothing, EnvironmentError_ if the file cannot be written.
    """
    statistics = generation.stats
    decoded = statistics.decode.tokens > 0
    phase = statistics.decode if decoded else statistics.prompt
    measurement = Measurement(
        Workload("tg" if decoded else "pp", phase.tokens),
        statistics.setup,
        (phase,),
        statistics.peak_rss,
        notes=tuple(generation.notes),
        memory=tuple(engine.plan.rows()),
        timeline=engine.timeline(phase.passes),
    )
    write_page(path, [measurement])
