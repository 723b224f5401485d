"""Measures tokens guessed ahead: a draft model, and look-up in the text itself, behind a slow drive.

SmolLM2 in bf16 streams from a drive that a cgroup holds to a rate (v1 blkio throttle, so this needs root), at
a budget of a share of its size; its own q4 is the draft model. Each round runs every case in a process of its
own, with and without guesses, and compares their tokens, which must be the same. Look-up is measured on a
prompt that asks to repeat a text with a change, and on free text, where guesses fail.

Prints a section of docs/benchmarks.md. MODEL is SmolLM2 as scripts/setup.sh fetches it.

    python scripts/bench_drafts.py MODEL.gguf [DIRECTORY] [--rounds 3] [--tokens 64] [--rate 300MB/s]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conditions import machine_conditions

from uringinfer.container.container import Container
from uringinfer.packing.packer import pack
from uringinfer.units import format_rate, format_size, parse_rate

BLKIO = Path("/sys/fs/cgroup/blkio")
TEXT = (
    "The lighthouse keeper, Tom Miller, climbed the stairs every evening at six. He trimmed the wick, filled"
    " the lamp with oil and wrote the weather into a blue book. On stormy nights he stayed awake until"
    " morning, and counted the ships that passed the rocks. His dog, Captain, slept beside the stove."
)
REPEAT = f"Repeat this text exactly, but call the keeper Sam Miller instead of Tom Miller:\n\n{TEXT}"
FREE = "Write a short story about a fox who learns to sail."


@contextmanager
def slow_drive(path: Path, rate: float) -> Iterator[Path]:
    """A cgroup whose reads of the drive below `path` are held to `rate`."""
    device = path.stat().st_dev
    group = BLKIO / f"uringinfer-drafts-{os.getpid()}"
    try:
        group.mkdir()
        limit = f"{os.major(device)}:{os.minor(device)} {round(rate)}"
        (group / "blkio.throttle.read_bps_device").write_text(limit)
    except OSError as error:
        sys.exit(f"a drive held to a rate needs root and the blkio controller of cgroup v1: {error}")
    try:
        yield group
    finally:
        group.rmdir()


@dataclass
class Case:
    """One way to generate; in each round, what it said."""

    name: str
    prompt: str
    options: tuple[str, ...]
    runs: list[dict[str, Any]] = field(default_factory=list)

    def run(self, model: Path, budget: int, tokens: int, group: Path) -> None:
        command = [sys.executable, "-m", "uringinfer", "generate", str(model), "-p", self.prompt, "--json"]
        command += ["-n", str(tokens), "--budget", str(budget), "--ignore-eos", *self.options]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        )
        if done.returncode:
            sys.exit(f"{self.name}: {done.stderr}")
        self.runs.append(json.loads(done.stdout))

    @property
    def speeds(self) -> list[float]:
        return [run["stats"]["decode"]["tokens_per_second"] for run in self.runs]

    def row(self, plain: Case) -> str:
        ratio = statistics.median(a / b for a, b in zip(self.speeds, plain.speeds, strict=True))
        same = all(a["tokens"] == b["tokens"] for a, b in zip(self.runs, plain.runs, strict=True))
        if not same:
            sys.exit(f"{self.name}: the tokens are not those of a run without guesses")
        stats = self.runs[-1]["stats"]
        drafts, decode = stats["drafts"], stats["decode"]
        guessed = f"{drafts['accepted']} of {drafts['guessed']}" if drafts else "-"
        per_pass = decode["tokens"] / decode["passes"]
        return (
            f"| {self.name} | {statistics.median(self.speeds):.2f} | {ratio:.2f} | {guessed} |"
            f" {per_pass:.2f} |"
            f" {format_size(round(decode['bytes_per_token']))} | {decode['disk_wait_share']:.0%} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rate", type=parse_rate, default=300e6)
    parser.add_argument("--share", type=float, default=0.35, help="of the model in memory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-drafts-", dir=".") as temporary:
        directory = arguments.directory or Path(temporary)
        model, draft = directory / "smollm2-bf16.uring", directory / "smollm2-q4.uring"
        if not model.exists():
            pack(arguments.model, model, trunk="bf16")
        if not draft.exists():
            pack(arguments.model, draft, trunk="q4")
        weights = Container.open(model).streamed_bytes
        small = Container.open(draft).streamed_bytes
        base = floor_of(model)
        budget = base + round(arguments.share * weights)
        plain = {
            name: Case(f"{name}, no guesses", text, ("--guesses", "0")) for name, text in PROMPTS.items()
        }
        cases = [
            (Case("repeat, draft model", REPEAT, ("--draft", str(draft))), "repeat"),
            (Case("free text, draft model", FREE, ("--draft", str(draft))), "free text"),
            (Case("repeat, look-up", REPEAT, ()), "repeat"),
            (Case("free text, look-up", FREE, ()), "free text"),
        ]
        with slow_drive(model, arguments.rate) as group:
            for _ in range(arguments.rounds):
                for case in (*plain.values(), *(case for case, _ in cases)):
                    extra = small if "--draft" in case.options else 0
                    case.run(model, budget + extra, arguments.tokens, group)
    print("## Tokens guessed ahead")
    print()
    print(
        f"`python scripts/bench_drafts.py`: {machine_conditions()}; SmolLM2 in bf16 ({format_size(weights)})"
        f" with {arguments.share:.0%} of it in memory, its q4 ({format_size(small)}) beside it where it"
        f" drafts, a drive held to {format_rate(arguments.rate)}; {arguments.rounds} rounds of"
        f" {arguments.tokens} greedy tokens. All tokens are those of the runs without guesses. Targets: 2"
        " times the tokens/s with the draft model, and with look-up where a text is repeated; not below 0.97"
        " on free text."
    )
    print()
    print("| case | tokens/s | times no guesses | accepted | tokens per pass | read per token | waiting |")
    print("|---|---|---|---|---|---|---|")
    for case in plain.values():
        print(case.row(case))
    for case, name in cases:
        print(case.row(plain[name]))


PROMPTS = {"repeat": REPEAT, "free text": FREE}


def floor_of(model: Path) -> int:
    """What a run needs besides pinned weights, as `plan` tells it."""
    command = [sys.executable, "-m", "uringinfer", "plan", str(model), "--json", "-c", "512"]
    planned = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    floor: int = planned["overlap_floor"]
    return floor


if __name__ == "__main__":
    main()
