"""Measures what a drive gives, as a person can believe it: the sweep behind `uringinfer probe`.

It reads a container's own files, a file, a block device, or a test file that it writes into a directory. It
knows what it reads, and reports as a drive's rate only what came from a drive.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from uringinfer.errors import EnvironmentError_
from uringinfer.planning.grants import lacking, room
from uringinfer.planning.machine import Machine
from uringinfer.probing.cells import Mode, ProbeCell, Way, choose_cells
from uringinfer.probing.conditions import Conditions, find_conditions
from uringinfer.probing.report import ProbeReport, Row, judge_row
from uringinfer.probing.saved import SavedRate, save_rate, saved_rate
from uringinfer.probing.target import open_target
from uringinfer.storage.arena import HUGE_PAGE, Arena
from uringinfer.storage.denial import Denial
from uringinfer.storage.direct import open_file
from uringinfer.storage.filesystem import cached_share, evict
from uringinfer.storage.throughput import Meter
from uringinfer.storage.uring import open_ring
from uringinfer.units import as_bytes

__all__ = ["Conditions", "Mode", "ProbeReport", "Row", "SavedRate", "probe", "save_rate", "saved_rate"]

Progress = Callable[[str, int, int], None]


def probe(
    path: str | os.PathLike[str],
    *,
    mode: Mode = "normal",
    size: int | str | None = None,
    require_direct: bool = False,
    progress: Progress | None = None,
) -> ProbeReport:
    """Sweeps block sizes, queue depths, patterns and ways to read over what lies at `path`.

    `size` bounds the test file, or how much of a file is read. `progress` is called with (what, done, in
    all). Cells whose reads in flight would take too much of what this process may use are left out. Raises
    UsageError if there is nothing at `path` or it is too small, BudgetError if not even the smallest fits
    into memory, EnvironmentError_ if direct I/O is required and refused or a test file finds no space,
    IntegrityError for a damaged container.
    """
    nbytes = as_bytes(size, "size")
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(
            open_target(Path(path), mode, nbytes, require_direct=require_direct, progress=progress)
        )
        machine = Machine.read()
        memory = room(machine) // 2  # the other half copies memory, for the header
        if memory < HUGE_PAGE:
            raise lacking("a probe", 2 * HUGE_PAGE, machine)
        cells, seconds = choose_cells(mode, target.nbytes, target.block_sizes, memory)
        in_flight = max(cell.block_bytes * cell.queue_depth for cell in cells)
        arena = stack.enter_context(Arena(max(in_flight, HUGE_PAGE)))
        ring = open_ring(1)
        buffer = arena.carve(arena.nbytes)
        conditions = find_conditions(target, arena, ring)
        if not isinstance(ring, Denial):
            ring.close()
        if require_direct and not conditions.direct:
            raise EnvironmentError_(
                f"{conditions.path}: no direct I/O: {conditions.direct_reason}",
                hint="losetup --direct-io=on lets a loop device bypass it",
            )
        cells = possible_cells(cells, conditions)
        cached_file = stack.enter_context(
            open_file(f"/proc/self/fd/{target.file.fd}", direct="never", shown_as=target.file.path)
        )
        meters = {
            False: Meter(target.file, target.nbytes, buffer, seconds),
            True: Meter(cached_file, target.nbytes, buffer, seconds),
        }
        rows = []
        for number, cell in enumerate(cells):
            if progress is not None:
                progress("probing", number, len(cells))
            buffered = cell.way is Way.BUFFERED
            share = 0.0
            if buffered or not conditions.direct:
                evict(target.file.fd, 0, 0)
                share = cached_share(target.file.fd, target.nbytes)
            measured = meters[buffered].measure(cell.cell)
            rows.append(Row(cell, measured, share, judge_row(conditions, measured, share)))
    return ProbeReport(conditions, target.model, tuple(rows))


def possible_cells(cells: Sequence[ProbeCell], conditions: Conditions) -> list[ProbeCell]:
    """`cells` in ways that this machine allows, each once: without a ring threads read, and what cannot be
    registered is read unregistered."""
    if conditions.ring_denial is not None:
        cells = [replace(cell, way=Way.PREADV) if cell.way.needs_ring else cell for cell in cells]
    elif conditions.registration_note is not None:
        cells = [replace(cell, way=Way.URING) if cell.way is Way.REGISTERED else cell for cell in cells]
    return list(dict.fromkeys(cells))
