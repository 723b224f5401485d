"""Packing a source in parts whose space is given back part by part.

Blocks are written in the order of the parts that they need. Once no block needs a part any more, what was
made of it is on the drive and has been read back, and only then the part is cut down to its header: the peak
is the container and one part. The header stays until the end, so that an interrupted pack can go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from uringinfer.errors import UsageError
from uringinfer.packing.journal import JOURNAL_NAME, is_journal_of
from uringinfer.packing.layout import Layout
from uringinfer.packing.staging import partial_path


@runtime_checkable
class PartedSource(Protocol):
    """A `source.TensorSource` in several files, each of which can be given back by itself."""

    @property
    def part_bytes(self) -> Sequence[int]:
        """The size of each part, as it was."""
        ...

    @property
    def given_back(self) -> Mapping[int, Path]:
        """The parts that are but headers, by number."""
        ...

    def part_of(self, name: str) -> int | None:
        """The number of the part that a tensor is in; None if it is computed."""
        ...

    def give_back(self, part: int) -> int:
        """Cuts a part down to its header, for good; the bytes given back."""
        ...


def stages_of(source: object, layout: Layout) -> list[list[int]]:
    """Numbers of blocks for each part of the source, those behind which it is not needed any more; empty if
    its parts cannot be given back one by one: there is one only, or matrices are converted, which may learn
    from all of a layer."""
    if not isinstance(source, PartedSource) or len(source.part_bytes) < 2 or layout.conversions:
        return []
    stages: list[list[int]] = [[] for _ in source.part_bytes]
    for number, block in enumerate(layout.blocks):
        names = {name for run in block.runs() if (name := getattr(run, "tensor", None)) is not None}
        parts = [part for name in names if (part := source.part_of(name)) is not None]
        stages[min(parts, default=0)].append(number)
    return stages


def check_continues(source: object, out: Path, key: str) -> None:
    """Raises UsageError if a part of the source was given back to another pack than that of `key` into `out`:
    what was made of it is nowhere else."""
    if not isinstance(source, PartedSource) or not source.given_back:
        return
    if not is_journal_of(partial_path(out) / JOURNAL_NAME, key):
        name = next(iter(source.given_back.values()))
        raise UsageError(
            f"{name}: its weights were given back while it was packed, to a container that is not whole yet",
            hint="run that pack again, with the same output and options: it goes on where it was",
        )
