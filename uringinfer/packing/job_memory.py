"""How many jobs of a pack fit into the memory that this process may use.

A job holds a buffer, a window to read through, what it holds back of a block, and, where it converts, a tile
of rows in several forms. The counts are upper bounds: where memory is not short they do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uringinfer.container.manifest import ALIGNMENT
from uringinfer.errors import BudgetError
from uringinfer.packing.conversion import CodesRun
from uringinfer.packing.layout import Block
from uringinfer.packing.runs import HeldRun, Run
from uringinfer.packing.windows import WINDOW_BYTES
from uringinfer.packing.writer import BUFFER_BYTES
from uringinfer.planning.machine import Machine
from uringinfer.planning.memory import INTERPRETER_MARGIN
from uringinfer.units import format_size

_BESIDE = 5 << 20
"""Bytes of a job for its stack, its allocator's arena and small arrays."""
_RESERVE = 8 << 20
"""Bytes for the journal, the manifest and what the kernel counts."""
_TILE_COPIES = 40
"""Bytes for each weight of a tile while it is decoded, encoded, decoded again and compared."""
_SEARCHING = 16 << 20
"""Bytes that looking for the nearest sums in a codebook, or fitting one, takes more."""
_WHOLE_COPIES = 12
"""Bytes for each weight of a panel that the source gives only as a whole."""


def smallest_read(run: Run) -> int:
    """Bytes that a buffer must have room for at once."""
    return min(run.unit_bytes, run.nbytes) if run.is_splittable else run.nbytes


def job_bytes(blocks: Iterable[Block]) -> int:
    """Bytes that a job takes at most for any of `blocks`; of those of one size, one is looked at."""
    kinds = {block.nbytes: block for block in blocks}
    return max((_block_bytes(block.runs()) for block in kinds.values()), default=0)


def _block_bytes(runs: Sequence[Run]) -> int:
    buffer = max(BUFFER_BYTES, max(map(smallest_read, runs)) + ALIGNMENT)
    held = sum(run.nbytes for run in runs if isinstance(run, HeldRun))
    return buffer + WINDOW_BYTES + _BESIDE + held + max(map(_converting, runs), default=0)


def _converting(run: Run) -> int:
    if not isinstance(run, CodesRun):
        return 0
    panel, matrix = run.panel, run.panel.matrix
    rows = min(panel.tile_units * panel.unit_rows, panel.stop - panel.start)
    whole = (panel.stop - panel.start) * matrix.cols if matrix.kept.is_read_whole else 0
    searching = _SEARCHING if matrix.encoder.form.bind is not None else 0
    return _TILE_COPIES * rows * matrix.cols + _WHOLE_COPIES * whole + searching


def jobs_within(jobs: int, each: int, machine: Machine) -> int:
    """As many of `jobs`, of `each` bytes, as fit beside what this process holds.

    Raises BudgetError with what one needs and what there is, if not even one fits.
    """
    usable = machine.usable_bytes
    needed = machine.resident + _RESERVE + each
    if needed > usable:
        needed += INTERPRETER_MARGIN
        raise BudgetError(
            f"packing needs at least {format_size(needed)} ({needed} bytes), and this process may use"
            f" {format_size(usable)} ({usable} bytes; {machine.bounded_by})",
            floor=needed,
            budget=usable,
            hint="raise the limit",
        )
    return max(1, min(jobs, (usable - machine.resident - _RESERVE) // max(1, each)))
