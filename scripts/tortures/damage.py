"""Damaged containers at default options: the right answer, or a refusal; never another answer."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tortures.common import forked, import_everything, make_models, random_of
from tortures.fork_made import answer
from tortures.mutations import mutate_bytes

MODELS = ("dense", "moe", "quantised")


def prepare(directory: Path) -> dict[str, Any]:
    import_everything()
    paths = make_models(directory)
    answers = {}
    for name in MODELS:
        outcome = forked(lambda name=name: answer(paths[name]))
        if outcome.kind != "returned":
            raise RuntimeError(f"the undamaged {name} does not run: {outcome.error}")
        answers[name] = outcome.result
    return {**paths, "answers": answers, "directory": directory}


def run(made: dict[str, Any], number: int, seed: int) -> str | None:
    rng = random_of(seed, "damage", number)
    name = MODELS[number % len(MODELS)]
    with tempfile.TemporaryDirectory(dir=made["directory"]) as scratch:
        copy = Path(scratch) / "m.uring"
        shutil.copytree(made[name], copy)
        what = _damage(copy, made, rng)
        outcome = forked(lambda: answer(copy))
    if outcome.kind == "returned" and outcome.result != made["answers"][name]:
        return f"{name}, {what}: a wrong answer: {outcome.result} instead of {made['answers'][name]}"
    if outcome.kind in ("raised", "killed", "hung"):
        return f"{name}, {what}: {outcome.kind}: {outcome.error}"
    return None


def _damage(copy: Path, made: dict[str, Any], rng: random.Random) -> str:
    """Harms one file, mostly one that holds weights; says how."""
    files = sorted(copy.iterdir())
    weights = [file for file in files if file.suffix == ".bin"]
    file = rng.choice(weights if rng.random() < 0.7 else files)
    data = bytearray(file.read_bytes())
    how = rng.choice(("bit", "bit", "block", "zeros", "exchange", "misplaced", "any", "gone", "another's"))
    start = rng.randrange(len(data)) if data else 0
    block = start // 512 * 512
    match how:
        case "bit" if data:
            data[start] ^= 1 << rng.randrange(8)
        case "block":
            data[block : block + 512] = rng.randbytes(len(data[block : block + 512]))
        case "zeros":
            page = start // 4096 * 4096
            data[page : page + 4096] = bytes(len(data[page : page + 4096]))
        case "exchange":
            other = rng.randrange(max(1, len(data))) // 512 * 512
            one, two = data[block : block + 512], data[other : other + 512]
            if len(one) == len(two):
                data[block : block + 512], data[other : other + 512] = two, one
        case "misplaced":
            page = start // 4096 * 4096
            data[page : page + 4096] = data[:4096][: len(data[page : page + 4096])]
        case "any":
            data = bytearray(mutate_bytes(bytes(data), rng))
        case "another's":
            found = made[rng.choice(MODELS)] / file.name
            data = bytearray(found.read_bytes()) if found.exists() else data[::-1]
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(data)
    return f"{how} at {start} of {file.name}"
