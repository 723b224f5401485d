"""Compares what `uringinfer probe` measures with what fio measures, cell by cell.

Both read the same file of random bytes past the page cache, with files and memory registered, into the very
same 2 MiB pages (from a pool that is reserved for the while, which takes root). They hand over up to four
reads at once and take as many as are there, at offsets that no run before has chosen: random ones are drawn
anew, sequential ones begin somewhere else each time. fio's map of offsets and its latencies are switched off:
the probe has no map, and reads the clock once for each batch that it hands over or takes.

In a round they take turns as fio, probe, probe, fio, so that neither is always the one that finds a drive
rested or a host's cache warm; a round's ratio is that of the sums. The first round of a cell warms up. The
ratio of a cell is the median of its rounds', shown with the quartiles. Beside it, by the same turns, stands
each program against itself, its first turn of a round by its second: where these medians stray from 1, they
tell how far the drive alone, or what else the machine does, moves a ratio.

    python scripts/compare_fio.py --directory /mnt/nvme
    python scripts/compare_fio.py --json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
from pathlib import Path
from statistics import median, quantiles

from fio import require_fio, run_fio, shared_huge_pages

from uringinfer.storage.direct import StorageFile
from uringinfer.storage.filesystem import filesystem_name
from uringinfer.storage.probe_file import random_file
from uringinfer.storage.saturate import BATCH
from uringinfer.storage.throughput import Cell, Engine, Meter, Pattern
from uringinfer.units import format_size, parse_size

KIB, MIB = 1 << 10, 1 << 20
SHAPES = {
    Pattern.SEQUENTIAL: (
        (4 * KIB, 1),
        (64 * KIB, 1),
        (512 * KIB, 8),
        (2 * MIB, 1),
        (2 * MIB, 16),
        (16 * MIB, 4),
    ),
    Pattern.RANDOM: ((4 * KIB, 1), (4 * KIB, 32), (64 * KIB, 8), (512 * KIB, 8), (2 * MIB, 1), (2 * MIB, 16)),
}
"""Block sizes and queue depths of the twelve cells."""
MERGED = ((4 * KIB, 32), (64 * KIB, 8))
"""Sequential too, but small blocks that are handed over together: the kernel merges them on their way."""
CELLS = [Cell(*shape, pattern, Engine.REGISTERED) for pattern, shapes in SHAPES.items() for shape in shapes]
MERGED_CELLS = [Cell(*shape, Pattern.SEQUENTIAL, Engine.REGISTERED) for shape in MERGED]
TARGET = 0.05
NOTE = """In each round: fio, probe, probe, fio; medians over the rounds, and the quartiles of the ratio.
"fio / fio" and "probe / probe" are the first turn by the second of the same program: what noise does.
Sequential reads of 4 and 64 KiB that are handed over together reach the drive merged into larger ones, as
many of up to four as happened to complete at once. There the rate is that of the merged reads, which is
neither program's doing: these cells stand apart, below the twelve.
"""
IN_FLIGHT = max(cell.block_bytes * cell.queue_depth for cell in CELLS)


def compare(
    file: StorageFile, meter: Meter, memory: Path, cell: Cell, rounds: int, seconds: float
) -> dict[str, object]:
    """One cell: fio, which reads into `memory`, probe, probe, fio in each round."""
    theirs: list[tuple[float, float]] = []
    ours: list[tuple[float, float]] = []
    for _ in range(1 + rounds):
        first = _fio(file, memory, cell, seconds)
        probed = [meter.measure(cell).bytes_per_second / 1e9 for _ in range(2)]
        theirs.append((first, _fio(file, memory, cell, seconds)))
        ours.append((probed[0], probed[1]))
    # the first round warms up
    del theirs[0], ours[0]
    ratios = [sum(mine) / sum(other) for mine, other in zip(ours, theirs, strict=True)]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return {
        "block_bytes": cell.block_bytes,
        "queue_depth": cell.queue_depth,
        "pattern": cell.pattern.value,
        "fio_gb_per_s": median(sum(turns) / 2 for turns in theirs),
        "probe_gb_per_s": median(sum(turns) / 2 for turns in ours),
        "ratio": middle,
        "ratio_quartiles": [low, high],
        "fio_by_itself": median(first / second for first, second in theirs),
        "probe_by_itself": median(first / second for first, second in ours),
        "within_target": abs(middle - 1) <= TARGET,
    }


def _fio(file: StorageFile, memory: Path, cell: Cell, seconds: float) -> float:
    """GB/s by fio."""
    is_random = cell.pattern is Pattern.RANDOM
    half = file.nbytes // 2 // cell.block_bytes
    return run_fio(
        f"/proc/{os.getpid()}/fd/{file.fd}",
        nbytes=file.nbytes,
        block_bytes=cell.block_bytes,
        queue_depth=cell.queue_depth,
        random=is_random,
        offset=0 if is_random else random.randrange(half) * cell.block_bytes,
        memory=memory,
        batch=BATCH,
        lean=True,
        seconds=seconds,
    ).gb_per_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directory", default=".", help="on the drive to measure; default: here")
    parser.add_argument("--size", type=parse_size, default=4 << 30, help="of the test file; default: 4G")
    parser.add_argument("--rounds", type=int, default=7, help="beside one that warms up")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each turn; default: 0.4")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    version = require_fio()
    with (
        random_file(options.directory, options.size, direct="require") as file,
        shared_huge_pages(IN_FLIGHT) as (memory_path, memory),
    ):
        meter = Meter(file, file.nbytes, memory, options.seconds)

        def compared(cells: list[Cell]) -> list[dict[str, object]]:
            return [
                compare(file, meter, memory_path, cell, options.rounds, options.seconds) for cell in cells
            ]

        report = {
            "conditions": {
                "cores": os.cpu_count(),
                "load": round(os.getloadavg()[0], 1),
                "kernel": platform.release(),
                "file system": filesystem_name(file.fd),
                "file": format_size(file.nbytes),
                "rounds": options.rounds,
                "seconds": options.seconds,
                "fio": version,
            },
            "cells": compared(CELLS),
            "merged_cells": compared(MERGED_CELLS),
        }
    if options.json:
        print(json.dumps(report, indent=1))
        return
    print("## The probe and fio\n")
    print(NOTE)
    print("; ".join(f"{name} {value}" for name, value in report["conditions"].items()) + "\n")
    columns = "pattern,block,QD,fio GB/s,probe GB/s,probe / fio,quartiles,within 5 %,fio / fio,probe / probe"
    print(f"| {columns.replace(',', ' | ')} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for cell in (*report["cells"], *report["merged_cells"]):
        verdict = "yes" if cell["within_target"] else "no"
        print(
            f"| {cell['pattern']} | {format_size(cell['block_bytes'])} | {cell['queue_depth']} "
            f"| {cell['fio_gb_per_s']:.3f} | {cell['probe_gb_per_s']:.3f} | {cell['ratio']:.3f} "
            f"| {cell['ratio_quartiles'][0]:.3f}-{cell['ratio_quartiles'][1]:.3f} "
            f"| {verdict if cell in report['cells'] else 'merged'} "
            f"| {cell['fio_by_itself']:.3f} | {cell['probe_by_itself']:.3f} |"
        )


if __name__ == "__main__":
    main()
