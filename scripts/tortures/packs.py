"""Two and three packs of one checkpoint into one container at once, some of them killed: one wins, the others
say so, and a whole container is there in the end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tortures.common import Outcome, forked, import_everything, make_models, random_of
from tortures.fork_made import answer


def prepare(directory: Path) -> dict[str, Any]:
    import_everything()
    paths: dict[str, Any] = dict(make_models(directory))
    wanted = forked(lambda: answer(paths["dense"]))
    if wanted.kind != "returned":
        raise RuntimeError(f"the undisturbed model does not run: {wanted.error}")
    return {**paths, "answer": wanted.result, "directory": directory}


def run(made: dict[str, Any], number: int, seed: int) -> str | None:
    rng = random_of(seed, "packs", number)
    with tempfile.TemporaryDirectory(dir=made["directory"]) as scratch:
        out = Path(scratch) / "m.uring"
        if rng.random() < 0.5:
            shutil.copytree(made["moe"], out)
        outcomes = _at_once(made["dense checkpoint"], out, rng)
        for outcome in outcomes:
            if outcome.kind in ("raised", "hung"):
                return f"{outcome.kind}: {outcome.error}"
        if any(outcome.kind == "returned" for outcome in outcomes):
            found = forked(lambda: answer(out))
            if found.kind != "returned" or found.result != made["answer"]:
                return f"a pack said that it was done over {found.result or found.error}"
        last = forked(lambda: _pack(made["dense checkpoint"], out))
        found = forked(lambda: answer(out))
        if last.kind != "returned" or found.result != made["answer"]:
            return f"one more pack: {last.error} {found.result or found.error}"
        left = sorted(path.name for path in Path(scratch).iterdir())
        if left != ["m.uring"]:
            return f"left behind: {left}"
    return None


def _pack(checkpoint: Path, out: Path) -> None:
    from uringinfer.packing.packer import pack

    pack(checkpoint, out, segment=32768, jobs=1, force=True)


def _at_once(checkpoint: Path, out: Path, rng: random.Random) -> list[Outcome]:
    count, begin = rng.choice((2, 3)), time.monotonic() + 0.05
    outcomes: list[Outcome] = []

    def one(delay: float, life: float | None) -> None:
        def work() -> None:
            time.sleep(max(0.0, begin + delay - time.monotonic()))
            if life is not None:
                threading.Timer(life, os.kill, (os.getpid(), signal.SIGKILL)).start()
            _pack(checkpoint, out)

        outcomes.append(forked(work))

    plans = [
        (rng.choice((0.0, rng.random() * 0.3)), rng.random() * 0.4 if rng.random() < 0.4 else None)
        for _ in range(count)
    ]
    threads = [threading.Thread(target=one, args=plan) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
