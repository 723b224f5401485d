"""Compares what `uringinfer probe` measures with what fio measures, cell by cell.

Both read the same file of random bytes past the page cache, alternating in one run: files and memory
registered, into 2 MiB pages (for fio from a pool that is reserved for the while, which takes root), handed
over and taken in batches. The ratio of a cell is the median of its rounds' ratios.

    python scripts/compare_fio.py --directory /mnt/nvme
    python scripts/compare_fio.py --json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
from statistics import median

from fio import huge_page_pool, require_fio, run_fio

from uringinfer.storage.arena import Arena
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.filesystem import filesystem_name
from uringinfer.storage.probe_file import random_file
from uringinfer.storage.throughput import Cell, Engine, Meter, Pattern
from uringinfer.units import format_size, parse_size

SHAPES = ((4 << 10, 1), (4 << 10, 32), (64 << 10, 8), (512 << 10, 8), (2 << 20, 1), (2 << 20, 16))
CELLS = [Cell(*shape, pattern, Engine.REGISTERED) for pattern, shape in itertools.product(Pattern, SHAPES)]
IN_FLIGHT = max(block * depth for block, depth in SHAPES)


def compare(file: StorageFile, meter: Meter, cell: Cell, rounds: int, seconds: int) -> dict[str, object]:
    """One cell: fio, then the probe, in each round."""
    theirs, ours = [], []
    for _ in range(rounds):
        fio = run_fio(
            f"/proc/{os.getpid()}/fd/{file.fd}",
            nbytes=file.nbytes,
            block_bytes=cell.block_bytes,
            queue_depth=cell.queue_depth,
            random=cell.pattern is Pattern.RANDOM,
            pooled=True,
            batched=True,
            seconds=seconds,
        )
        theirs.append(fio.gb_per_s)
        ours.append(meter.measure(cell).bytes_per_second / 1e9)
    return {
        "block_bytes": cell.block_bytes,
        "queue_depth": cell.queue_depth,
        "pattern": cell.pattern.value,
        "fio_gb_per_s": median(theirs),
        "probe_gb_per_s": median(ours),
        "ratio": median(mine / other for mine, other in zip(ours, theirs, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directory", default=".", help="on the drive to measure; default: here")
    parser.add_argument("--size", type=parse_size, default=4 << 30, help="of the test file; default: 4G")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=1, help="for each cell and program; default: 1")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    version = require_fio()
    with (
        random_file(options.directory, options.size, direct="require") as file,
        Arena(IN_FLIGHT) as arena,
        huge_page_pool(2 * IN_FLIGHT),
    ):
        meter = Meter(file, file.nbytes, arena.carve(IN_FLIGHT), options.seconds)
        report = {
            "conditions": {
                "cores": os.cpu_count(),
                "kernel": platform.release(),
                "file system": filesystem_name(file.fd),
                "file": format_size(file.nbytes),
                "rounds": options.rounds,
                "seconds": options.seconds,
                "fio": version,
            },
            "cells": [compare(file, meter, c, options.rounds, options.seconds) for c in CELLS],
        }
    if options.json:
        print(json.dumps(report, indent=1))
        return
    print("; ".join(f"{name} {value}" for name, value in report["conditions"].items()) + "\n")
    print("| pattern | block | QD | fio GB/s | probe GB/s | probe / fio |")
    print("|---|---|---|---|---|---|")
    for cell in report["cells"]:
        print(
            f"| {cell['pattern']} | {format_size(cell['block_bytes'])} | {cell['queue_depth']} "
            f"| {cell['fio_gb_per_s']:.3f} | {cell['probe_gb_per_s']:.3f} | {cell['ratio']:.3f} |"
        )


if __name__ == "__main__":
    main()
