"""Measures a model at several settings, each in a process of its own.

A process' peak memory never falls and its allocator keeps what it had, so a setting that came after a larger
one would show the wrong peak and would plan its budget around leftovers. A new process starts from nothing.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from uringinfer.bench.measure import Measurement, Progress, measure
from uringinfer.bench.parent import end_with_parent
from uringinfer.bench.workload import Workload
from uringinfer.engine.load_options import DEFAULT_CHUNK, DEFAULT_LOOKAHEAD, LoadOptions
from uringinfer.engine.memory import peak_resident_bytes
from uringinfer.engine.opening import open_model
from uringinfer.errors import BudgetError, EnvironmentError_, UringinferError
from uringinfer.report import excess_notes
from uringinfer.storage.reader import ReaderKind


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run: `budget` None is what the machine grants, `threads` None all processors; `batch` is how
    many conversations are fed together."""

    budget: int | None = None
    io: ReaderKind = "auto"
    threads: int | None = None
    lookahead: int = DEFAULT_LOOKAHEAD
    batch: int = 1

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def settings_of(
    budgets: Sequence[int | None],
    readers: Sequence[ReaderKind],
    threads: Sequence[int | None],
    lookaheads: Sequence[int],
    batches: Sequence[int] = (1,),
) -> list[Setting]:
    """Every combination, the last one changing fastest."""
    return [Setting(*values) for values in product(budgets, readers, threads, lookaheads, batches)]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A setting that cannot run: its budget is below the model's floor."""

    error: BudgetError


Result = Measurement | Refusal


@dataclass(frozen=True, slots=True)
class Bench:
    """What to measure: `workloads`, each `repetitions` times, of the container at `model`.

    `timeline` also records what a typical pass does when; `verify_reads` is that of `LoadOptions`.
    """

    model: Path
    workloads: tuple[Workload, ...]
    repetitions: int
    chunk: int = DEFAULT_CHUNK
    timeline: bool = False
    verify_reads: bool = True

    def options(self, setting: Setting) -> LoadOptions:
        """How a model is loaded for all workloads at `setting`, with just enough context."""
        longest = max((w.tokens for w in self.workloads if w.kind == "pp"), default=1)
        depth = max(w.depth for w in self.workloads)
        return LoadOptions(
            budget=setting.budget,
            io=setting.io,
            lookahead=setting.lookahead,
            context=max(w.context for w in self.workloads),
            chunk=min(self.chunk, max(longest, depth)),
            parallel=setting.batch,
            guesses=0,  # the tokens are given
            timeline=self.timeline,
            verify_reads=self.verify_reads,
        )


def run_bench(
    bench: Bench, settings: Sequence[Setting], progress: Progress | None = None
) -> Iterator[tuple[Setting, Result]]:
    """Measures one setting after the other, and gives each workload's result as soon as it is there.

    Raises what loading and running raise, apart from a budget below the floor, which is a result of its own.
    """
    context = multiprocessing.get_context("spawn")
    for setting in settings:
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(target=_run_setting, args=(bench, setting, sending), daemon=True)
        child.start()
        sending.close()
        try:
            for result in _results(receiving, child, progress):
                yield setting, result
        finally:
            child.terminate()
            child.join()
            receiving.close()


def _results(
    receiving: Connection, child: multiprocessing.process.BaseProcess, progress: Progress | None
) -> Iterator[Result]:
    while True:
        try:
            message = receiving.recv()
        except EOFError:
            child.join()
            raise EnvironmentError_(
                f"the measuring process ended with exit code {child.exitcode} before it had a result",
                hint="killed for want of memory? Give a smaller --budget",
            ) from None
        match message:
            case None:
                return
            case BudgetError() as error:
                yield Refusal(error)
            case UringinferError() as error:
                raise error
            case Measurement() as measurement:
                yield measurement
            case (str(what), int(done), int(total)) if progress is not None:
                progress(what, done, total)


def _run_setting(bench: Bench, setting: Setting, sending: Connection) -> None:
    """What the process does. Sends progress, measurements, an error if one came, and None at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C too, and ends this process
    end_with_parent()

    def progress(what: str, done: int, total: int) -> None:
        sending.send((what, done, total))

    try:
        opened = open_model(bench.model, threads=setting.threads)
        with opened.load(bench.options(setting), _in_mib(progress)) as engine:
            for workload in bench.workloads:
                phases = measure(engine, workload, bench.repetitions, progress)
                peak = peak_resident_bytes()
                paging = phases[-1].paging.notes(phases[-1].seconds)
                measurement = Measurement(
                    workload,
                    engine.setup,
                    phases,
                    peak,
                    notes=(*engine.notes, *excess_notes(engine.setup.budget, peak), *paging),
                    memory=tuple(engine.plan.rows()),
                    timeline=engine.timeline(phases[-1].passes),
                )
                sending.send(measurement)
    except UringinferError as error:
        sending.send(error)
    sending.send(None)


def _in_mib(progress: Progress) -> Progress:
    """`progress`, told of bytes, in MiB: everything else is counted in whole repetitions."""
    return lambda what, done, total: progress(f"{what}, MiB", done >> 20, total >> 20)
