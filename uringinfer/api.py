"""The public functions: load, pack, verify, plan, probe. The command line and the server use only these."""

from __future__ import annotations

from pathlib import Path

from uringinfer.bench.measure import Measurement
from uringinfer.bench.roofline import Roofline, roofline
from uringinfer.bench.sweep import Bench, Refusal, Setting, run_bench, settings_of
from uringinfer.bench.sweep import Result as BenchResult
from uringinfer.bench.workload import Workload, workloads_of
from uringinfer.build_facts import BuildFacts, read_build_facts
from uringinfer.container.verifier import VerifyReport
from uringinfer.doctor import Finding, Status, diagnose
from uringinfer.doctor.read_clock import clock_latency, clock_reads
from uringinfer.engine.compute_clock import clock_compute
from uringinfer.engine.draft_model import load_with_draft
from uringinfer.engine.engine import Engine
from uringinfer.engine.generation import Generation, GenerationOptions, Listener
from uringinfer.engine.job import JobResult, run_job
from uringinfer.engine.load_options import DEFAULT_CHUNK, DEFAULT_LOOKAHEAD, LoadOptions
from uringinfer.engine.loading import OpenModel, Progress
from uringinfer.engine.logits_file import LogitsFile
from uringinfer.engine.opening import Announce, open_model, open_to_plan
from uringinfer.engine.outlook import Choice, Outlook, choices_of, outlook_of, sweep
from uringinfer.engine.outputs import check_writable
from uringinfer.engine.prompt import Prompter
from uringinfer.engine.prompts_file import Asked, answered_before, prompt_line, read_prompts
from uringinfer.engine.session import Session
from uringinfer.engine.session_file import SessionHeader, read_header
from uringinfer.models.verification import verify
from uringinfer.packing import PackReport, pack
from uringinfer.pages.run_page import write_page
from uringinfer.perplexity import Comparison, PerplexityResult, measure_perplexity
from uringinfer.planning.planner import Placement
from uringinfer.planning.rates import Rates
from uringinfer.probing import Conditions as ProbeConditions
from uringinfer.probing import Mode as ProbeMode
from uringinfer.probing import ProbeReport, SavedRate, probe, save_rate, saved_rate
from uringinfer.probing import Row as ProbeRow
from uringinfer.residency.policies import DEFAULT_POLICY, ONLINE_POLICIES
from uringinfer.residency.trace import TraceWriter
from uringinfer.storage.direct import open_file
from uringinfer.storage.reader import ReaderKind
from uringinfer.text.sampling import SamplingOptions
from uringinfer.text.tokenizer import Tokenizer
from uringinfer.units import parse_size

__all__ = [
    "DEFAULT_CHUNK",
    "DEFAULT_LOOKAHEAD",
    "DEFAULT_POLICY",
    "ONLINE_POLICIES",
    "Asked",
    "Bench",
    "BenchResult",
    "BuildFacts",
    "Choice",
    "Comparison",
    "Engine",
    "Finding",
    "Generation",
    "GenerationOptions",
    "JobResult",
    "Listener",
    "LoadOptions",
    "LogitsFile",
    "Measurement",
    "OpenModel",
    "Outlook",
    "PackReport",
    "PerplexityResult",
    "Placement",
    "ProbeConditions",
    "ProbeMode",
    "ProbeReport",
    "ProbeRow",
    "Prompter",
    "Rates",
    "ReaderKind",
    "Refusal",
    "Roofline",
    "SamplingOptions",
    "SavedRate",
    "Session",
    "SessionHeader",
    "Setting",
    "Status",
    "Tokenizer",
    "TraceWriter",
    "VerifyReport",
    "Workload",
    "answered_before",
    "check_writable",
    "choices_of",
    "diagnose",
    "load",
    "load_with_draft",
    "measure_perplexity",
    "measure_rates",
    "open_model",
    "open_to_plan",
    "outlook_of",
    "pack",
    "plan",
    "probe",
    "prompt_line",
    "read_build_facts",
    "read_header",
    "read_prompts",
    "roofline",
    "run_bench",
    "run_job",
    "save_rate",
    "saved_rate",
    "settings_of",
    "sweep",
    "verify",
    "workloads_of",
    "write_page",
    "write_run_page",
]


def load(
    path: str | Path,
    *,
    budget: int | str | None = None,
    io: ReaderKind = "auto",
    threads: int | None = None,
    context: int | None = None,
    chunk: int = DEFAULT_CHUNK,
    placement: Placement = "spread",
    ring_slots: int = 2,
    verify_reads: bool = True,
    native: bool | None = None,
    pack_dir: Path | None = None,
    chat_template: Path | None = None,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> Engine:
    """Loads the model at `path`: a container, or a checkpoint directory or GGUF file, which is packed first.

    `budget` bounds the memory of the whole process, in bytes or as "8G"; None takes what the machine grants.
    `verify_reads` checks everything that is read before it is used; leaving that out saves next to nothing.
    `native` None uses the C kernels if they are there. `progress` is called with (what, bytes done, bytes in
    all), `announce` with a line before something long that was not asked for, which is packing.

    Raises BudgetError below the model's floor, UnsupportedModelError for a model that this package does not
    run, IntegrityError for damaged files, UsageError for options that cannot be.
    """
    opened = open_model(
        path,
        threads=threads,
        native=native,
        pack_dir=pack_dir,
        chat_template=chat_template,
        progress=progress,
        announce=announce,
    )
    options = LoadOptions(
        budget=_bytes(budget),
        context=context,
        chunk=chunk,
        io=io,
        placement=placement,
        ring_slots=ring_slots,
        verify_reads=verify_reads,
    )
    return opened.load(options, progress)


def plan(
    path: str | Path,
    *,
    budget: int | str | None = None,
    context: int | None = None,
    chunk: int = DEFAULT_CHUNK,
    placement: Placement = "spread",
    ring_slots: int = 2,
    rates: Rates | None = None,
) -> Outlook:
    """Where the memory of `budget` (bytes, or "8G") would go if `load` loaded the model at `path`; a
    checkpoint is planned as it would be packed, and nothing is written.

    Raises what `load` raises before it reads weights: BudgetError below the floor, for one.
    """
    options = LoadOptions(
        budget=_bytes(budget), context=context, chunk=chunk, placement=placement, ring_slots=ring_slots
    )
    return outlook_of(open_to_plan(path), options, rates or Rates())


def _bytes(size: int | str | None) -> int | None:
    return parse_size(size) if isinstance(size, str) else size


def measure_rates(opened: OpenModel, seconds: float = 2.0, progress: Progress | None = None) -> Rates:
    """Clocks the drive, and passes on the model's own weights: about `seconds` each, with experts twice as
    long for the passes.

    `progress` is called with (what, clocks done, in all). The drive's rate is None for a trunk that is too
    short to be clocked. Raises IntegrityError for reads that fail.
    """
    container = opened.container
    if progress is not None:
        progress("clocking", 0, 2)
    with open_file(container.trunk_path) as file:
        reads = clock_reads(file, seconds)
        latency = clock_latency(file, seconds / 10)
    if progress is not None:
        progress("clocking", 1, 2)
    spent = clock_compute(container, opened.model, opened.kernels, seconds, lookahead=DEFAULT_LOOKAHEAD)
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
