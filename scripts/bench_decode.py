"""Measures decoding from a drive: time per token against what the reader alone needs for the same bytes.

Makes a model (once): llama-shaped in bf16, or Kimi K3-shaped (3.8 GB; MXFP4 experts; trunk and experts 4 to 1
in the bytes of a token). In each round it measures, one after the other, the reader alone and `uringinfer
generate` at several budgets, ring sizes and placements, each in a process of its own. Drives and neighbours
drift within minutes, so only figures of one round are compared; the table gives medians.

Prints a section of docs/benchmarks.md. Without DIRECTORY the model is made below the current one and removed.

    python scripts/bench_decode.py [DIRECTORY] [--size 4GB] [--rounds 3] [--tokens 4]
    python scripts/bench_decode.py [DIRECTORY] --model kimi-k3 [--rounds 3] [--tokens 12]
    python scripts/bench_decode.py [DIRECTORY] --checks [--model kimi-k3] [--rounds 7] [--tokens 12]

--checks measures what checking every read costs: with and without in pairs, the one and then the other first,
at a budget where the drive is the bound and with everything in memory.
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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conditions import machine_conditions
from kimi_k3_layout import text_config
from make_kimi_k3 import SHAPES
from make_kimi_k3 import write_checkpoint as write_kimi_k3
from make_synthetic import layers_for_size, llama_config, llama_tensors, write_checkpoint

from uringinfer.container.container import Container
from uringinfer.packing.packer import pack
from uringinfer.residency.ring import SegmentRing
from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import open_file
from uringinfer.storage.reader import open_reader
from uringinfer.units import format_rate, format_size, parse_size

READER_SLOTS = 4


def prepare(directory: Path, size: int) -> Container:
    """The packed model of about `size` bytes in `directory`, made if it is not there."""
    path = directory / f"llama-{size}.uring"
    if not path.exists():
        checkpoint = directory / f"llama-{size}"
        config = llama_config(layers=layers_for_size(size))
        write_checkpoint(checkpoint, config, llama_tensors(config))
        pack(checkpoint, path)
        for file in checkpoint.iterdir():
            file.unlink()
        checkpoint.rmdir()
    return Container.open(path)


def prepare_kimi_k3(directory: Path) -> Container:
    """The packed Kimi K3-shaped model in `directory`, made if it is not there."""
    path = directory / "kimi-k3.uring"
    if not path.exists():
        checkpoint = directory / "kimi-k3"
        write_kimi_k3(checkpoint, text_config(**SHAPES["bench"]), seed=0)
        pack(checkpoint, path)
        shutil.rmtree(checkpoint)
    return Container.open(path)


def reader_rate(container: Container) -> float:
    """Bytes per second of the reader alone: one pass of all segments through a ring, nothing computed."""
    segments = container.streamed_segments
    largest = max(segment.nbytes for segment in segments)
    with Arena(READER_SLOTS * largest) as arena, open_file(container.trunk_path) as file:
        reader = open_reader("auto", arena=arena, files=[file])
        ring = SegmentRing(reader, file, segments, [arena.carve(largest) for _ in range(READER_SLOTS)])
        began = time.perf_counter()
        ring.start()
        for _ in segments:
            ring.take().release()
        seconds = time.perf_counter() - began
        ring.close()
        reader.close()
    return sum(segment.nbytes for segment in segments) / seconds


@dataclass
class Case:
    """Options of one way to decode; in each round, its run statistics and the reader's rate before it."""

    name: str
    budget: int
    options: tuple[str, ...] = ()
    runs: list[dict[str, Any]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def run(self, container: Container, tokens: int) -> None:
        self.rates.append(reader_rate(container))
        command = [sys.executable, "-m", "uringinfer", "generate", str(container.path), "--ids", "1,2,3,4"]
        command += [
            "-n",
            str(tokens + 1),
            "--ignore-eos",
            "--json",
            "--budget",
            str(self.budget),
            *self.options,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{self.name}: {done.stderr}")
        self.runs.append(json.loads(done.stdout)["stats"])

    @property
    def seconds(self) -> list[float]:
        """Seconds per token, one figure a round."""
        return [1 / run["decode"]["tokens_per_second"] for run in self.runs]

    @property
    def ratios(self) -> list[float]:
        """Time per token over (bytes per token / the reader's rate just before), one figure a round."""
        return [
            seconds * rate / run["decode"]["bytes_per_token"]
            for seconds, rate, run in zip(self.seconds, self.rates, self.runs, strict=True)
            if run["decode"]["bytes_per_token"]
        ]

    def bound_ratios(self, compute_seconds: float) -> list[float]:
        """Time per token over the larger of its reads at the reader's rate and its computation alone."""
        return [
            seconds / max(compute_seconds, run["decode"]["bytes_per_token"] / rate)
            for seconds, rate, run in zip(self.seconds, self.rates, self.runs, strict=True)
        ]

    def row(self) -> str:
        """One line of the table."""
        decode = [run["decode"] for run in self.runs]
        ratio = f"{statistics.median(self.ratios):.2f}" if self.ratios else "-"
        spread = f"{min(self.ratios):.2f}-{max(self.ratios):.2f}" if self.ratios else "-"
        peak = max(run["peak_rss_bytes"] for run in self.runs)
        waits = statistics.median(d["disk_wait_share"] for d in decode)
        return (
            f"| {self.name} | {format_size(self.budget)} | {decode[0]['hit_rate']:.1%} |"
            f" {format_size(round(decode[0]['bytes_per_token']))} | {statistics.median(self.seconds):.2f} |"
            f" {format_rate(statistics.median(self.rates))} | {ratio} ({spread}) | {waits:.0%} |"
            f" {format_size(peak)} |"
        )


def compare(one: Case, other: Case) -> str:
    """How the times of two cases relate, round by round."""
    ratios = [a / b for a, b in zip(one.seconds, other.seconds, strict=True)]
    return (
        f"- {one.name} takes {statistics.median(ratios):.3f} times as long as {other.name}"
        f" (median of {len(ratios)} rounds, {min(ratios):.2f}-{max(ratios):.2f})"
    )


def conditions(container: Container, rounds: int, tokens: int) -> str:
    with open_file(container.trunk_path) as file:
        direct = file.direct.reason if file.direct.is_direct else f"not direct: {file.direct.reason}"
    segments = container.streamed_segments
    weights, largest = container.streamed_bytes, max(segment.nbytes for segment in segments)
    return (
        f"{machine_conditions()}, {direct}; {format_size(weights)} of weights in {len(segments)}"
        f" segments of at most {format_size(largest)}; {rounds} rounds of {tokens} decoded tokens"
    )


def llama_cases(container: Container) -> tuple[list[Case], Callable[[], list[str]]]:
    """What is measured of a dense model, and what is said of it afterwards."""
    quarter, half = container.streamed_bytes // 4, container.streamed_bytes // 2
    two = Case("25 %, 2 slots", quarter)
    three = Case("25 %, 3 slots", quarter, ("--ring-slots", "3"))
    one = Case("25 %, 1 slot", quarter, ("--ring-slots", "1"))
    spread = Case("50 %, spread", half)
    prefix = Case("50 %, prefix", half, ("--placement", "prefix"))
    everything = Case("everything", 2 * container.streamed_bytes)
    cases = [two, three, one, spread, prefix, everything]
    return cases, lambda: [compare(three, two), compare(one, two), compare(prefix, spread)]


def kimi_k3_cases(container: Container) -> tuple[list[Case], Callable[[], list[str]]]:
    """Budgets as shares of trunk and experts together, each against the bound of its reads and
    computation."""
    weights = container.streamed_bytes + container.bank_bytes
    cases = [Case(f"{share} %", weights * share // 100) for share in (15, 30, 60, 100)]
    everything = Case("everything", 2 * weights)

    def bounds() -> list[str]:
        compute = statistics.median(everything.seconds)
        return [
            f"- {case.name}: {statistics.median(ratios):.2f} times the larger of reading and computing alone"
            f" (median of {len(ratios)} rounds, {min(ratios):.2f}-{max(ratios):.2f})"
            for case in cases
            for ratios in [case.bound_ratios(compute)]
        ]

    return [*cases, everything], bounds


def checking_cases(container: Container) -> tuple[list[Case], Callable[[], list[str]]]:
    """Pairs with and without checks, at a quarter of the weights and with all of them in memory."""
    weights = container.streamed_bytes + container.bank_bytes
    budgets = {"drive-bound": weights * 3 // 10, "in memory": 2 * weights}
    pairs = [
        (Case(f"{name}, checked", budget), Case(f"{name}, unchecked", budget, ("--no-verify-reads",)))
        for name, budget in budgets.items()
    ]

    def costs() -> list[str]:
        lines = []
        for checked, unchecked in pairs:
            ratios = [
                plain / with_checks
                for with_checks, plain in zip(checked.seconds, unchecked.seconds, strict=True)
            ]
            shares = [run["decode"]["check_seconds"] / run["decode"]["seconds"] for run in checked.runs]
            cpu = [
                statistics.median(
                    run["decode"]["user_seconds"] / run["decode"]["tokens"] for run in case.runs
                )
                for case in (checked, unchecked)
            ]
            lines.append(
                f"- {checked.name}: {statistics.median(ratios):.3f} of the tokens/s without checks (median of"
                f" {len(ratios)} pairs, {min(ratios):.2f}-{max(ratios):.2f}); the computing thread spends"
                f" {statistics.median(shares):.2%} of its time on checks; user time per token"
                f" {1e3 * cpu[0]:.1f} against {1e3 * cpu[1]:.1f} ms"
            )
        return lines

    return [case for pair in pairs for case in pair], costs


def measure(
    heading: str,
    container: Container,
    cases: list[Case],
    say: Callable[[], list[str]],
    rounds: int,
    tokens: int,
) -> None:
    """Runs every case in every round and prints the section."""
    for number in range(rounds):
        for case in cases if number % 2 == 0 else reversed(cases):
            case.run(container, tokens)
    print(f"## {heading}")
    print()
    print(conditions(container, rounds, tokens))
    print()
    print(
        "| case | budget | hit rate | read per token | s per token | reader alone | ratio | waiting | peak |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for case in cases:
        print(case.row())
    print()
    for line in say():
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--model", choices=["llama", "kimi-k3"], default="llama")
    parser.add_argument("--size", type=parse_size, default=4 * 10**9, help="of the llama-shaped model")
    parser.add_argument("--checks", action="store_true", help="what checking every read costs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-decode-", dir=".") as temporary:
        directory = arguments.directory or Path(temporary)
        if arguments.model == "kimi-k3":
            container = prepare_kimi_k3(directory)
            heading, make_cases = "Decode, Kimi K3's shape", kimi_k3_cases
        else:
            container = prepare(directory, arguments.size)
            heading, make_cases = "Decode", llama_cases
        if arguments.checks:
            heading, make_cases = f"{heading}: what checking reads costs", checking_cases
        cases, say = make_cases(container)
        measure(heading, container, cases, say, arguments.rounds, arguments.tokens)


if __name__ == "__main__":
    main()
