"""Every command in a memory cgroup of exactly its budget, or of the floor that it names: none is killed, and
none refuses its own floor.

Needs root, and memory cgroups of version 1 or 2.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tortures.common import ROOT, import_everything, make_models, random_of

sys.path.append(str(ROOT / "tests" / "faults"))

FLOOR = re.compile(r"floor of [^(]*\((\d+) bytes\)")
UNBOUNDED = 128 << 20
"""The cgroup of commands that take no budget and must do with little."""
WITH_BUDGET = {
    "generate": ["{model}", "--ids", "1,2,3", "-n", "4", "--ignore-eos"],
    "perplexity": ["{model}", "{ids}", "-c", "16", "--windows", "3"],
    "bench": ["{model}", "-p", "8", "-n", "2", "-r", "1"],
    "plan": ["{model}", "--drive", "1GB/s"],
}
WITHOUT = {
    "info": ["{model}", "--tensors"],
    "verify": ["{model}"],
    "pack": ["{checkpoint}", "{new}/m.uring"],
    "tokenize": ["{dense}", "-p", "a few words"],
    "detokenize": ["{dense}", "1,2,3"],
    "doctor": ["{model}"],
    "probe": ["{new}", "--quick", "--size", "32M"],
    "shard": ["{moved}", "--to", "{new}"],
}


def prepare(directory: Path) -> dict[str, Any]:
    import_everything()
    paths: dict[str, Any] = dict(make_models(directory))
    paths["floors"] = {}
    paths["directory"] = directory
    text = directory / "text"
    text.write_text("The capital of France is Paris. " * 20)
    paths["text"] = text
    return paths


def run(made: dict[str, Any], number: int, seed: int) -> str | None:
    from cgroup_runs import run_in_cgroup, uringinfer

    rng = random_of(seed, "budgets", number)
    commands = [*WITH_BUDGET, *WITHOUT]
    name = commands[number % len(commands)]
    with tempfile.TemporaryDirectory(dir=made["directory"]) as scratch:
        model = made[rng.choice(("dense", "moe")) if name != "perplexity" else "dense"]
        arguments = _filled({**WITH_BUDGET, **WITHOUT}[name], made, model, Path(scratch))
        if name in WITHOUT:
            limit, asked = UNBOUNDED, "what it may use"
        else:
            floor = _floor(made, name, arguments)
            share = rng.choice((0.0, 0.0, 0.1, 0.5, 1.0))
            limit = floor + round(share * (64 << 20))
            limit += -limit % 4096  # cgroups count pages
            asked = "its floor" if share == 0 else "its budget"
            arguments += ["--budget", str(limit)]
        done = run_in_cgroup(uringinfer(name, *arguments), limit)
    if done.was_killed:
        return f"{name} {' '.join(arguments)} was killed in a cgroup of {limit} bytes, {asked}"
    # who asks for a benchmark is in the cgroup, and in no budget: that is of the process that measures
    if done.code == 5 and name == "bench":
        return None
    if done.code == 5 and name in WITH_BUDGET:
        return f"{name} refused {limit} bytes, {asked}: {done.err.strip()}"
    if done.code not in (0, 1) or (done.code == 1 and name != "doctor") or "Traceback" in done.err:
        return f"{name} {' '.join(arguments)} in {limit} bytes: code {done.code}: {done.err.strip()[-400:]}"
    return None


def _filled(pattern: list[str], made: dict[str, Any], model: Path, scratch: Path) -> list[str]:
    import shutil

    new = scratch / "new"
    new.mkdir()
    moved = scratch / "moved.uring"
    if "{moved}" in pattern:
        shutil.copytree(made["moe"], moved)
    places = {
        "model": model,
        "dense": made["dense"],
        "checkpoint": made["dense checkpoint"],
        "ids": made["text"],
        "new": new,
        "moved": moved,
    }
    return [part.format_map(places) for part in pattern]


def _floor(made: dict[str, Any], name: str, arguments: list[str]) -> int:
    """The floor that the command names, outside of any cgroup."""
    import subprocess

    key = json.dumps([name, arguments])
    if key not in made["floors"]:
        command = [sys.executable, "-m", "uringinfer", name, *arguments, "--budget", "1M"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        found = FLOOR.search(done.stderr)
        if found is None:
            raise RuntimeError(f"{name} names no floor: {done.stderr}")
        made["floors"][key] = int(found[1])
    return made["floors"][key]
