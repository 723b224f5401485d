"""Measures conversations that share passes: tokens per second and bytes per token at 1, 2, 4 and 8 of them.

Makes a dense llama-shaped model and a mixture of experts (once), and runs `uringinfer bench -b N` in
processes of their own, all numbers of conversations in one round. Then twelve conversations of three turns go
through four slots, with a directory to swap to. Drives and neighbours drift within minutes, so only figures
of one round are compared; the table gives medians.

Prints a section of docs/benchmarks.md. Without DIRECTORY the models are made below the current one and
removed.

    python scripts/bench_batch.py [DIRECTORY] [--size 4GB] [--rounds 3] [--tokens 12]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bench_decode
import bench_moe
import numpy as np
from conditions import machine_conditions

from uringinfer.container.container import Container
from uringinfer.engine.answers import BatchStatistics, Request, answer_all
from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.load_options import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.text.sampling import SamplingOptions
from uringinfer.units import format_size, parse_size

BATCHES = (1, 2, 4, 8)
HISTORY = 120


def run_bench(container: Container, budget: int, batch: int, tokens: int) -> dict[str, Any]:
    """The result of `uringinfer bench` at one number of conversations."""
    command = [sys.executable, "-m", "uringinfer", "bench", str(container.path), "--json", "-p", "0"]
    command += ["-n", str(tokens), "-r", "1", "--budget", str(budget), "-b", str(batch)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{batch} conversations: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)["results"][0]
    return result


def section(name: str, container: Container, budget: int, rounds: int, tokens: int) -> None:
    """Runs every number of conversations in every round and prints their table."""
    runs: dict[int, list[dict[str, Any]]] = {batch: [] for batch in BATCHES}
    for _ in range(rounds):
        for batch in BATCHES:
            runs[batch].append(run_bench(container, budget, batch, tokens))
    print(f"{name}, {format_size(bench_moe.model_bytes(container))}, `--budget` {format_size(budget)}:")
    print()
    print("| conversations | tokens/s | times one | of N times | read per token | of one | waiting |")
    print("|---|---|---|---|---|---|---|")
    for batch in BATCHES:
        pairs = list(zip(runs[batch], runs[1], strict=True))
        faster = statistics.median(a["tokens_per_second"] / b["tokens_per_second"] for a, b in pairs)
        fewer = statistics.median(a["bytes_per_token"] / b["bytes_per_token"] for a, b in pairs)
        rate = statistics.median(run["tokens_per_second"] for run in runs[batch])
        read = statistics.median(run["bytes_per_token"] for run in runs[batch])
        waits = statistics.median(run["disk_wait_share"] for run in runs[batch])
        print(
            f"| {batch} | {rate:.2f} | {faster:.2f} | {faster / batch:.2f} | {format_size(round(read))} |"
            f" {fewer:.2f} | {waits:.0%} |"
        )
    print()


def swap(container: Container, budget: int, directory: Path) -> None:
    """Twelve conversations of three turns over four slots, with and without a directory to swap to."""
    rng = np.random.default_rng(0)
    sampling = SamplingOptions(temperature=1.0, seed=1)
    options = GenerationOptions(max_tokens=4, sampling=sampling, ignore_eos=True)
    seconds, said, statistic = {}, {}, BatchStatistics()
    opened = open_model(container.path)
    with opened.load(LoadOptions(budget=budget, context=256, parallel=4, guesses=0)) as engine:
        vocab = engine.model.vocab_size
        start = [rng.integers(vocab, size=HISTORY).tolist() for _ in range(12)]
        for place in (None, directory):
            histories, began = [list(ids) for ids in start], time.perf_counter()
            statistic = BatchStatistics()
            for turn in range(3):
                requests = [Request(ids, options) for ids in histories]
                for answer in answer_all(engine, requests, statistics=statistic, swap=place):
                    histories[answer.number] = [*requests[answer.number].ids, *answer.tokens, 60 + turn]
            seconds[place], said[place] = time.perf_counter() - began, histories
    if said[None] != said[directory]:
        sys.exit("swapped conversations say something else")
    moves = statistic.swap.out + statistic.swap.back
    print(
        f"Twelve conversations of three turns over four slots say the same with `--swap` and without, in"
        f" {seconds[directory]:.2f} and {seconds[None]:.2f} s: {statistic.swap.out} went to the drive and"
        f" {statistic.swap.back} came back, {format_size(statistic.swap.nbytes // moves)} and"
        f" {1e3 * statistic.swap.seconds / moves:.1f} ms each; {statistic.swap.reused_tokens} tokens were not"
        " fed again."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--size", type=parse_size, default=4 * 10**9, help="of the dense model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=12)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-batch-", dir=".") as temporary:
        directory = arguments.directory or Path(temporary)
        dense = bench_decode.prepare(directory, arguments.size)
        (mixture,) = bench_moe.prepare(directory)
        print("## Conversations that share passes")
        print()
        print(
            f"`python scripts/bench_batch.py`: {machine_conditions()}; {arguments.rounds} rounds of"
            f" {arguments.tokens} decoded tokens each, random tokens, other ones in every conversation."
            " Targets: at least 0.85 of N times the tokens/s of one (dense); at most 0.6 of its bytes per"
            " token at eight (mixture)."
        )
        print()
        section("Dense", dense, dense.streamed_bytes // 4, arguments.rounds, arguments.tokens)
        budget = bench_moe.model_bytes(mixture) * 20 // 100
        section("Mixture of experts", mixture, budget, arguments.rounds, arguments.tokens)
        swap(mixture, budget, Path(temporary) / "swap")


if __name__ == "__main__":
    main()
