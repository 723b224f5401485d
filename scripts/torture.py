"""Does all kinds of harm to the program, at random, and prints the command that does what broke it again.

    scripts/torture.py --minutes 60 --seed 1            everything in turn, until the time is over
    scripts/torture.py damage --count 2000              damaged containers, default options
    scripts/torture.py parsers --count 10000            mutated manifests, configs, headers, sessions, ...
    scripts/torture.py kills                            a kill at each system call of pack, shard, save, ...
    scripts/torture.py packs --count 100                two and three packs at once, some of them killed
    scripts/torture.py budgets --count 200              all commands in a cgroup of their budget or floor
    scripts/torture.py soak --minutes 60                one engine, prompts, cancels and sessions without end

Exit code 1 if anything broke. A case is named by mode, seed and number (`--first N --count 1`).
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

MODES = {"damage": 2000, "parsers": 10_000, "kills": None, "packs": 100, "budgets": 200, "soak": 1}
"""How many cases each mode does by default; None means as many as there are."""
IN_TURN = ("damage", "parsers", "kills", "packs", "budgets")
"""What is done at random, without a mode; a soak is a mode of its own, and budgets need root."""


def main() -> int:
    options = _arguments()
    directory = Path(options.directory or tempfile.mkdtemp(prefix="torture-", dir="."))
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    broken = done = 0
    began = time.monotonic()
    try:
        for mode, number in _cases(options, directory, deadline):
            problem = MADE[mode][0].run(MADE[mode][1], number, options.seed)
            done += 1
            if problem is not None:
                broken += 1
                print(f"\n{mode} {number}: {problem}")
                print(
                    f"again: scripts/torture.py {mode} --seed {options.seed} --first {number} --count 1",
                    flush=True,
                )
            elif options.verbose:
                print(f"{mode} {number}", flush=True)
            if broken >= options.most:
                break
    finally:
        if not options.directory:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"{done} cases with seed {options.seed} in {time.monotonic() - began:.0f} s, {broken} broken")
    return 1 if broken else 0


MADE: dict[str, tuple[Any, Any]] = {}
"""Mode -> (its module, what its cases share)."""


def _prepared(mode: str, options: argparse.Namespace, directory: Path) -> None:
    if mode not in MADE:
        module = importlib.import_module(f"tortures.{mode}")
        settings = {"minutes": options.minutes or 60} if mode == "soak" else {}
        MADE[mode] = module, module.prepare(directory / mode, **settings)


def _cases(options: argparse.Namespace, directory: Path, deadline: float | None) -> Iterator[tuple[str, int]]:
    """(mode, number) of every case to do."""
    if options.mode is not None:
        _prepared(options.mode, options, directory)
        module, made = MADE[options.mode]
        count = options.count or MODES[options.mode] or module.cases(made) - options.first
        for number in range(options.first, options.first + count, options.every):
            if options.mode != "soak" and deadline is not None and time.monotonic() > deadline:
                return
            yield options.mode, number
        return
    rng = random.Random(options.seed)
    deadline = deadline or time.monotonic() + 600
    _prepared("kills", options, directory)  # begins this process anew, with its shim
    while time.monotonic() < deadline:
        mode = rng.choice(IN_TURN if os.geteuid() == 0 else IN_TURN[:-1])
        _prepared(mode, options, directory)
        for _ in range(10):
            if time.monotonic() < deadline:
                yield mode, rng.randrange(1_000_000)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", nargs="?", choices=list(MODES), help="one kind of harm; default: all in turn")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, help="how many cases")
    parser.add_argument("--every", type=int, default=1, help="only every n-th of them")
    parser.add_argument("--most", type=int, default=20, help="give up after so many that broke")
    parser.add_argument("--directory", help="where models are made and kept; on the drive to test")
    parser.add_argument("--verbose", action="store_true", help="name every case")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
