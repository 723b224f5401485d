"""How long half a million tensors take: the index of Kimi K3's 96 shards, its layout, its manifest.

Makes the checkpoint in its real size, of holes (scripts/make_skeleton.py), below DIRECTORY (default: the
current one), and removes it at the end. No weights are read: there are none, and the container whose manifest
is opened is hollow too. Prints a section of docs/benchmarks.md.

    python scripts/bench_index.py [DIRECTORY] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from conditions import machine_conditions
from kimi_k3_layout import text_config
from make_skeleton import write_skeleton

from uringinfer.container import Container
from uringinfer.container.geometry import pointed_files
from uringinfer.container.manifest import AuxiliaryFile
from uringinfer.container.row_checksums import ROW_CHECKSUMS_NAME, row_checksum_bytes
from uringinfer.engine.memory import peak_resident_bytes
from uringinfer.models import model_from_config
from uringinfer.packing.checkpoint import CheckpointSource
from uringinfer.packing.layout import Layout, make_layout

TARGETS = {"index": 5.0, "layout": None, "open": 2.0}
"""Seconds that each step may take."""
PEAK_BYTES = 600 * 10**6
"""That building the index may take, of resident memory."""
NAMES = {
    "index": "index of the checkpoint",
    "layout": "layout of the container",
    "open": "opening the container",
}


def write_hollow_container(out: Path, layout: Layout) -> None:
    """The manifest, and files of the right lengths with nothing in them."""
    out.mkdir(parents=True, exist_ok=True)
    checksums = AuxiliaryFile(ROW_CHECKSUMS_NAME, row_checksum_bytes(layout.manifest.segments), 0)
    manifest = replace(layout.manifest, files=(checksums,))
    for name, nbytes in pointed_files(manifest):
        with (out / name).open("wb") as file:
            file.truncate(nbytes)
    (out / "manifest.json").write_text(manifest.to_json())


def measure(step: str, checkpoint: Path, container: Path) -> dict[str, float]:
    """Seconds, processor seconds and peak memory of one step, in this process."""
    if step == "layout":
        source = CheckpointSource.open(checkpoint)
    wall, used = time.perf_counter(), time.process_time()
    if step == "index":
        CheckpointSource.open(checkpoint).close()
    elif step == "layout":
        layout = make_layout(model_from_config(source.config), source)
    else:
        Container.open(container)
    seconds, processor = time.perf_counter() - wall, time.process_time() - used
    peak = peak_resident_bytes()
    if step == "layout":
        source.close()
        write_hollow_container(container, layout)
    return {"seconds": seconds, "processor": processor, "peak": peak}


def in_own_process(step: str, checkpoint: Path, container: Path) -> dict[str, float]:
    """`measure`, so that one step's memory does not count for the next."""
    command = [sys.executable, __file__, "--step", step, str(checkpoint), str(container)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{NAMES[step]} failed")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def print_section(runs: dict[str, list[dict[str, float]]], tensors: int) -> None:
    print("## The index of half a million tensors")
    print()
    print(
        f"`python scripts/bench_index.py`: {machine_conditions()}; {tensors:,} tensors;"
        f" medians of {len(runs['index'])} rounds, each step in a process of its own."
    )
    print()
    print("| step | s | s of processor | peak | target |")
    print("|---|---|---|---|---|")
    for step, found in runs.items():
        seconds, processor = (
            statistics.median(run[key] for run in found) for key in ("seconds", "processor")
        )
        peak = max(run["peak"] for run in found)
        bound = TARGETS[step]
        target = "" if bound is None else f"{bound:g} s"
        is_met = bound is None or seconds <= bound
        if step == "index":
            target += f", {PEAK_BYTES / 1e6:.0f} MB"
            is_met = is_met and peak <= PEAK_BYTES
        if target:
            target += ": met" if is_met else ": missed"
        print(f"| {NAMES[step]} | {seconds:.2f} | {processor:.2f} | {peak / 1e6:.0f} MB | {target} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", default=Path())
    parser.add_argument("container", type=Path, nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step", choices=list(NAMES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(measure(options.step, options.directory, options.container)))
        return
    with tempfile.TemporaryDirectory(prefix="bench-index-", dir=options.directory) as temporary:
        checkpoint, container = Path(temporary, "Kimi-K3"), Path(temporary, "Kimi-K3.uring")
        tensors, _ = write_skeleton(checkpoint, text_config())
        runs = {
            step: [in_own_process(step, checkpoint, container) for _ in range(options.rounds)]
            for step in NAMES
        }
    print_section(runs, tensors)


if __name__ == "__main__":
    main()
