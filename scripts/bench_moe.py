"""Measures mixtures of experts from a drive: overlap and lookahead against synchronous reads, and the prompt.

Makes a Qwen3-MoE-shaped bf16 model (once). In each round every case runs in a process of its own, one after
the other; before each budget the reader alone reads random records. Drives and neighbours drift within
minutes, so only figures of one round are compared; the table gives medians.

Two ways to read synchronously are compared with, both by the same engine over a wrapped reader, with nothing
ahead and nothing computed meanwhile. "One read at a time": each missing expert is read by one blocking read
when the sum comes to it, then computed. "One batch a layer": all that a layer lacks is read at once, at full
queue depth, and waited for; then the layer is computed.

Prints a section of docs/benchmarks.md. Without DIRECTORY the model is made below the current one and removed.

    python scripts/bench_moe.py [DIRECTORY] [--rounds 2] [--tokens 24]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from conditions import machine_conditions
from make_synthetic import write_checkpoint
from synchronous_readers import BatchAtATime, OneAtATime
from synthetic_moe import GAINS, moe_config, moe_tensors

from uringinfer.container.container import Container
from uringinfer.engine import loading
from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.packing.packer import pack
from uringinfer.packing.recipe import KEEP
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import open_file
from uringinfer.storage.reader import Priority, ReadRequest, Ticket, open_reader
from uringinfer.text.sampling import SamplingOptions
from uringinfer.units import format_rate, format_size

MODEL = {"layers": 16, "hidden": 1024, "inner": 256, "experts": 128, "per_token": 8}
PROMPT = [(37 * n) % 16000 for n in range(64)]
RECORDS_ALONE = 400
READS: dict[str, Any] = {"overlapped": None, "one": OneAtATime, "batch": BatchAtATime}
WHOLE_RECORD = 4 << 20
"""Pieces of synchronous readers: no record is split, so that one read at a time is one."""
TABLE_HEAD = """\
| case | budget | tokens/s | read per token | hits | recall | guesses used | waiting | in flight | rate |
|---|---|---|---|---|---|---|---|---|---|"""
"""What `Case.row` gives."""
METHOD = """\
`python scripts/bench_moe.py`: a model with random zero-mean weights, in which nearly all experts are
used, about equally often. It chooses 8 of 128 experts in each layer, as Qwen3-30B-A3B does, at half of
that model's width; a record is as large as one of its experts at 2.7 bits a weight (2.4 MiB at 4.25).
"One read at a time" is what an engine with synchronous reads does: each missing expert is one blocking
read when the sum comes to it, then it is computed. "One batch a layer" reads all that a layer lacks at
full queue depth and waits for it. Recall is that of the early guess. Targets: 1.5 times the tokens per
second of one read at a time; 0.9 of the reader's rate while experts stream."""


def prepare(directory: Path, formats: Sequence[str] = (KEEP,)) -> list[Container]:
    """The model in `directory`, packed with its experts in each of `formats`; made if it is not there."""
    checkpoint = directory / "moe"
    paths = [directory / ("moe.uring" if name == KEEP else f"moe-{name}.uring") for name in formats]
    for name, path in zip(formats, paths, strict=True):
        if not path.exists():
            if not checkpoint.exists():
                config = moe_config(**MODEL)
                write_checkpoint(checkpoint, config, moe_tensors(config), gains=GAINS)
            pack(checkpoint, path, experts=name)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return [Container.open(path) for path in paths]


def model_bytes(container: Container) -> int:
    return container.streamed_bytes + container.table_bytes + container.bank_bytes


def reader_rate(container: Container) -> float:
    """Bytes per second of the reader alone: random records of random layers, many in flight."""
    rng = np.random.default_rng(time.monotonic_ns() % 2**32)
    banks = container.manifest.banks
    record = max(bank.record_bytes for bank in banks)
    slots = 32
    with Arena(slots * record) as arena:
        files = [open_file(container.bank_paths(bank)[0]) for bank in banks]
        reader = open_reader("auto", arena=arena, files=files)
        regions = [arena.carve(record) for _ in range(slots)]
        tickets: list[Ticket] = []
        began = time.perf_counter()
        for number in range(RECORDS_ALONE):
            if number >= slots:
                reader.wait(tickets[number - slots])
            which = int(rng.integers(len(banks)))
            nbytes = banks[which].record_bytes
            offset = int(rng.integers(banks[which].num_experts)) * nbytes
            region = regions[number % slots][:nbytes]
            tickets.append(reader.submit([ReadRequest(files[which], offset, region, Priority.DEMAND)]))
        for ticket in tickets[-slots:]:
            reader.wait(ticket)
        seconds = time.perf_counter() - began
        reader.close()
        for file in files:
            file.close()
    return RECORDS_ALONE * record / seconds


def work(path: str, budget: int, *, chunk: int, tokens: int, lookahead: int, reads: str) -> None:
    """One run in this process; prints its statistics as JSON."""
    wrap = READS[reads]
    if wrap is not None:
        opened_reader = loading.open_reader
        loading.open_reader = lambda *args, **options: wrap(
            opened_reader(*args, **options, split_bytes=WHOLE_RECORD)
        )
    options = LoadOptions(
        budget=budget, context=256, chunk=chunk, lookahead=lookahead, ring_slots=1 if wrap else 2
    )
    with open_model(path).load(options) as engine:
        # drawn at random, since the likeliest token of random weights repeats itself, and with it its experts
        sampling = SamplingOptions(temperature=1.0, seed=1)
        generate = GenerationOptions(max_tokens=tokens + 1, sampling=sampling, ignore_eos=True)
        generation = engine.generate(PROMPT, generate)
        used = int(np.count_nonzero(engine.routing.counts.counts)) if engine.routing else 0
    print(json.dumps({**generation.stats.to_json(), "distinct": used, "tokens": generation.tokens}))


@dataclass
class Case:
    """One way to run; in each round, its statistics and the rate of the reader alone."""

    name: str
    budget: int
    chunk: int = 64
    tokens: int = 24
    lookahead: int = 6
    reads: str = "overlapped"
    runs: list[dict[str, Any]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def run(self, container: Container, rate: float | None = None) -> None:
        """Runs once more; `rate` is the reader's, measured now if it is not given."""
        self.rates.append(reader_rate(container) if rate is None else rate)
        options = {name: getattr(self, name) for name in ("chunk", "tokens", "lookahead", "reads")}
        command = [sys.executable, __file__, str(container.path), "--worker", json.dumps(options)]
        done = subprocess.run([*command, str(self.budget)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{self.name}: {done.stderr}")
        self.runs.append(json.loads(done.stdout))

    def median(self, phase: str, key: str) -> float:
        return statistics.median(run[phase][key] for run in self.runs)

    def row(self) -> str:
        decodes = [run["decode"] for run in self.runs]
        experts = decodes[-1]["experts"]
        shares = [
            decode["in_flight_bytes_per_second"] / rate
            for decode, rate in zip(decodes, self.rates, strict=True)
        ]
        recall = "-" if experts["recall"] is None else f"{experts['recall']:.0%}"
        return (
            f"| {self.name} | {format_size(self.budget)} | {self.median('decode', 'tokens_per_second'):.2f} |"
            f" {format_size(round(self.median('decode', 'bytes_per_token')))} | {experts['hit_rate']:.1%} |"
            f" {recall} | {experts['prefetched']} of {experts['guesses']} |"
            f" {self.median('decode', 'disk_wait_share'):.0%} |"
            f" {self.median('decode', 'in_flight_share'):.0%} | {statistics.median(shares):.0%} |"
        )


def ratio(faster: Case, slower: Case) -> str:
    ratios = [
        a["decode"]["tokens_per_second"] / b["decode"]["tokens_per_second"]
        for a, b in zip(faster.runs, slower.runs, strict=True)
    ]
    return (
        f"- {faster.name}: {statistics.median(ratios):.2f} times the tokens per second of {slower.name}"
        f" ({min(ratios):.2f}-{max(ratios):.2f})"
    )


def prompt_ratio(one: Case, other: Case, key: str) -> float:
    """How the prompts of two cases compare in `key`, the median over rounds."""
    return statistics.median(
        a["prompt"][key] / b["prompt"][key] for a, b in zip(one.runs, other.runs, strict=True)
    )


def cases(nbytes: int, tokens: int) -> tuple[list[list[Case]], Case, Case]:
    """For each budget: overlapped with and without lookahead, and both synchronous ways. Then the prompt,
    token by token and in one chunk."""
    groups = []
    for percent in (20, 40, 70):
        common = {"budget": nbytes * percent // 100, "tokens": tokens}
        groups.append(
            [
                Case(f"{percent} %, overlap and lookahead", **common),
                Case(f"{percent} %, overlap alone", **common, lookahead=0),
                Case(f"{percent} %, one read at a time", **common, lookahead=0, reads="one"),
                Case(f"{percent} %, one batch a layer", **common, lookahead=0, reads="batch"),
            ]
        )
    budget = nbytes * 20 // 100
    stepwise = Case("prompt token by token", budget, chunk=1, tokens=1)
    return groups, stepwise, Case("prompt in one chunk", budget, chunk=64, tokens=1)


def measure(container: Container, rounds: int, tokens: int) -> None:
    """Runs every case in every round and prints the section."""
    nbytes = model_bytes(container)
    groups, stepwise, chunked = cases(nbytes, tokens)
    for _ in range(rounds):
        for group in (*groups, [stepwise, chunked]):
            rate = reader_rate(container)
            for case in group:
                case.run(container, rate)
    distinct = groups[0][0].runs[0]["distinct"]
    total, record = MODEL["layers"] * MODEL["experts"], container.manifest.banks[0].record_bytes
    rates = [rate for group in groups for rate in group[0].rates]
    print("## Mixtures of experts")
    print()
    print(METHOD)
    print()
    print(
        f"{machine_conditions()}; {format_size(nbytes)}, {MODEL['layers']} layers of {MODEL['experts']}"
        f" experts, {MODEL['per_token']} per token, records of {format_size(record)}; {rounds} rounds of"
        f" {len(PROMPT)} prompt tokens and {tokens} decoded ones, which used {distinct} of {total} experts;"
        f" the reader alone, at this record size: {format_rate(min(rates))} to {format_rate(max(rates))}"
    )
    print()
    print(TABLE_HEAD)
    for group in groups:
        for case in group:
            print(case.row())
    print()
    print(
        '"in flight" is the share of the time with a read in flight, until it is noticed that it is over,'
        ' "rate" the rate of reading in that time as a share of what the reader alone gives; hits count what'
        " guesses brought."
    )
    print()
    for both, plain, one, batch in groups:
        for other in (one, batch, plain):
            print(ratio(both, other))
    read, took = (prompt_ratio(chunked, stepwise, key) for key in ("bytes_read", "seconds"))
    print(
        f"- {len(PROMPT)} prompt tokens in one chunk, at 20 %, read {read:.3f} of the bytes and take"
        f" {took:.2f} of the time of one token at a time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--worker", nargs=2, metavar=("OPTIONS", "BUDGET"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(str(arguments.directory), int(arguments.worker[1]), **json.loads(arguments.worker[0]))
        return
    with tempfile.TemporaryDirectory(prefix="bench-moe-", dir=".") as temporary:
        (container,) = prepare(arguments.directory or Path(temporary))
        measure(container, arguments.rounds, arguments.tokens)


if __name__ == "__main__":
    main()
