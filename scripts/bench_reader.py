"""Measures the reader against fio, and what a gigabyte costs in CPU.

Both read the same file of random bytes past the page cache with the same block size and queue depth, files
and buffers registered, alternating in one run, because a drive's rate changes from minute to minute. fio runs
as it comes, into 4 KiB pages, and again into 2 MiB pages as the reader does; the ratio is to the latter. Then
the reader alone, at several piece sizes, into 2 MiB and 4 KiB pages, registered with the ring or not. Medians
over the rounds.

    python scripts/bench_reader.py --directory /mnt/nvme --size 4G
    python scripts/bench_reader.py --json
"""

from __future__ import annotations

import argparse
import itertools
import json
import mmap
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
from fio import FioResult, require_fio, run_fio

from uringinfer.storage.arena import HUGE_PAGE, Arena
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.filesystem import filesystem_name
from uringinfer.storage.probe_file import random_file
from uringinfer.storage.reader import ReadRequest, open_reader
from uringinfer.units import format_size, parse_size

SLOT_BYTES = 64 << 20  # two slots, read in turn, as the trunk's ring does it
MIB = 1 << 20


@dataclass(frozen=True)
class Cell:
    """One way to read: piece size, reader, and what memory it reads into."""

    split_bytes: int
    kind: str = "uring"
    huge: bool = True
    registered: bool = True


class SmallPages:
    """Memory for the slots in 4 KiB pages, with the attributes of an arena that a reader asks for."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._mapping.madvise(mmap.MADV_NOHUGEPAGE)
        self._memory = np.frombuffer(self._mapping, np.uint8)
        self._memory[:: mmap.PAGESIZE] = 0
        self.address = self._memory.ctypes.data
        self._used = 0

    def carve(self, nbytes: int) -> np.ndarray:
        start, self._used = self._used, self._used + nbytes
        return self._memory[start : start + nbytes]


def read_once(file: StorageFile, cell: Cell, queue_depth: int) -> FioResult:
    """Reads the whole file through a reader as `cell` says."""
    arena = Arena(2 * SLOT_BYTES) if cell.huge else SmallPages(2 * SLOT_BYTES)
    slots = [arena.carve(SLOT_BYTES) for _ in range(2)]
    reader = open_reader(
        cell.kind,
        arena=arena if cell.registered else None,
        files=[file] if cell.registered else (),
        queue_depth=queue_depth,
        split_bytes=cell.split_bytes,
    )
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    tickets = [None, None]
    for index, offset in enumerate(range(0, file.nbytes, SLOT_BYTES)):
        if tickets[index % 2] is not None:
            reader.wait(tickets[index % 2])
        slot = slots[index % 2][: min(SLOT_BYTES, file.nbytes - offset)]
        tickets[index % 2] = reader.submit([ReadRequest(file, offset, slot)])
    for ticket in tickets:
        if ticket is not None:
            reader.wait(ticket)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    reader.close()
    gigabytes = file.nbytes / 1e9
    return FioResult(
        gb_per_s=gigabytes / seconds,
        user_ms_per_gb=(after.ru_utime - before.ru_utime) * 1e3 / gigabytes,
        system_ms_per_gb=(after.ru_stime - before.ru_stime) * 1e3 / gigabytes,
    )


def medians(results: list[FioResult]) -> FioResult:
    return FioResult(*(median(values) for values in zip(*(asdict(r).values() for r in results), strict=True)))


def compare_with_fio(file: StorageFile, cell: Cell, queue_depth: int, rounds: int) -> dict[str, object]:
    """Alternates fio and the reader; the ratio is the median of the rounds' ratios."""
    job = {
        "path": f"/proc/{os.getpid()}/fd/{file.fd}",
        "nbytes": file.nbytes,
        "block_bytes": cell.split_bytes,
        "queue_depth": queue_depth,
    }
    plain, huge, ours = [], [], []
    for _ in range(rounds):
        plain.append(run_fio(**job))
        huge.append(run_fio(**job, huge=True))
        ours.append(read_once(file, cell, queue_depth))
    return {
        "cell": asdict(cell),
        "fio": asdict(medians(plain)),
        "fio_huge": asdict(medians(huge)),
        "reader": asdict(medians(ours)),
        "ratio": median(mine.gb_per_s / fio.gb_per_s for mine, fio in zip(ours, huge, strict=True)),
    }


def measure_cells(file: StorageFile, queue_depth: int, rounds: int) -> Iterator[dict[str, object]]:
    """All cells once in each round, so that a slow minute falls on all of them."""
    cells = [
        Cell(split, huge=huge, registered=registered)
        for split, huge, registered in itertools.product(
            (MIB, 2 * MIB, 4 * MIB), (True, False), (True, False)
        )
    ]
    cells += [Cell(split, kind="preadv", registered=False) for split in (MIB, 2 * MIB, 4 * MIB)]
    results: dict[Cell, list[FioResult]] = {cell: [] for cell in cells}
    for _ in range(rounds):
        for cell in cells:
            results[cell].append(read_once(file, cell, queue_depth))
    for cell in cells:
        yield {"cell": asdict(cell), "reader": asdict(medians(results[cell]))}


def print_markdown(report: dict[str, object]) -> None:
    print("; ".join(f"{name} {value}" for name, value in report["conditions"].items()) + ".\n")
    print("GB/s, and CPU in user + kernel mode in ms/GB:\n")
    print("| piece | fio, 4 KiB pages | fio, 2 MiB pages | reader | reader / fio |")
    print("|---|---|---|---|---|")
    for row in report["comparison"]:
        columns = [
            f"{result['gb_per_s']:.2f}, {result['user_ms_per_gb']:.1f} + {result['system_ms_per_gb']:.1f}"
            for result in (row["fio"], row["fio_huge"], row["reader"])
        ]
        print(f"| {format_size(row['cell']['split_bytes'])} | {' | '.join(columns)} | {row['ratio']:.3f} |")
    print("\n| reader | piece | pages | registered | GB/s | user ms/GB | kernel ms/GB |")
    print("|---|---|---|---|---|---|---|")
    for row in report["cells"]:
        cell, reader = row["cell"], row["reader"]
        print(
            f"| {cell['kind']} | {format_size(cell['split_bytes'])} | {'2 MiB' if cell['huge'] else '4 KiB'} "
            f"| {'yes' if cell['registered'] else 'no'} | {reader['gb_per_s']:.2f} "
            f"| {reader['user_ms_per_gb']:.1f} | {reader['system_ms_per_gb']:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directory", default=".", help="on the drive to measure; default: here")
    parser.add_argument("--size", type=parse_size, default=4 << 30, help="of the test file; default: 4G")
    parser.add_argument("--queue-depth", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    version = require_fio()
    size = max(options.size // HUGE_PAGE, 1) * HUGE_PAGE
    with random_file(options.directory, size, direct="require", progress=report_progress) as file:
        report = {
            "conditions": {
                "CPU": f"{os.cpu_count()} cores",
                "kernel": platform.release(),
                "file system": filesystem_name(file.fd),
                "file": format_size(file.nbytes),
                "queue depth": options.queue_depth,
                "rounds": options.rounds,
                "fio": version,
            },
            "comparison": [
                compare_with_fio(file, Cell(split), options.queue_depth, options.rounds)
                for split in (MIB, 2 * MIB, 4 * MIB)
            ],
            "cells": list(measure_cells(file, options.queue_depth, options.rounds)),
        }
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print_markdown(report)


def report_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\rwriting the test file: {100 * done // total} %", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
