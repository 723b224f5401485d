"""Measures decoding from a drive: time per token against what the reader alone needs for the same bytes.

Makes a llama-shaped bf16 model (once). In each round it measures, one after the other, the reader alone and
`uringinfer generate` at several budgets, ring sizes and placements, each in a process of its own. Drives and
neighbours drift within minutes, so only figures of one round are compared; the table gives medians.

Prints a section of docs/benchmarks.md. Without DIRECTORY the model is made below the current one and removed.

    python scripts/bench_decode.py [DIRECTORY] [--size 4GB] [--rounds 3] [--tokens 4]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
        f"{os.cpu_count()} processors ({platform.machine()}), Linux {platform.release()}, {direct};"
        f" load average {os.getloadavg()[0]:.1f}; {format_size(weights)} of weights in {len(segments)}"
        f" segments of at most {format_size(largest)}; {rounds} rounds of {tokens} decoded tokens"
    )


def measure(container: Container, rounds: int, tokens: int) -> None:
    """Runs every case in every round and prints the section."""
    quarter, half = container.streamed_bytes // 4, container.streamed_bytes // 2
    two = Case("25 %, 2 slots", quarter)
    three = Case("25 %, 3 slots", quarter, ("--ring-slots", "3"))
    one = Case("25 %, 1 slot", quarter, ("--ring-slots", "1"))
    spread = Case("50 %, spread", half)
    prefix = Case("50 %, prefix", half, ("--placement", "prefix"))
    everything = Case("everything", 2 * container.streamed_bytes)
    cases = [two, three, one, spread, prefix, everything]
    for _ in range(rounds):
        for case in cases:
            case.run(container, tokens)
    print("## Decode")
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
    for line in (compare(three, two), compare(one, two), compare(prefix, spread)):
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--size", type=parse_size, default=4 * 10**9)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-decode-", dir=".") as temporary:
        directory = arguments.directory or Path(temporary)
        measure(prepare(directory, arguments.size), arguments.rounds, arguments.tokens)


if __name__ == "__main__":
    main()
