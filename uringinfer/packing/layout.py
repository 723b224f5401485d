"""Where everything of a checkpoint will lie in its container. Reads no weights and writes nothing.

`make_layout` asks the model for its tensors in order of execution, finds each in the source, and gives
blocks: parts of the container's files that are written, checked and resumed as one. A block says which rows
of which source tensors it is made of; what no run covers is zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from uringinfer.container.manifest import ALIGNMENT, FORMAT_VERSION, Manifest, Segment, TensorPart
from uringinfer.errors import IntegrityError, UnsupportedModelError, UsageError
from uringinfer.models.base import Model, TensorGroup, TensorSpec
from uringinfer.packing.segments import Cut, Item, auto_segment_bytes, cut_group, round_up
from uringinfer.packing.source import FORMAT_OF_DTYPE, SourceTensor, TensorSource

TRUNK_NAME = "trunk.bin"

SegmentSize = int | Literal["layer", "auto"]

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Run:
    """`nbytes` of a block from `offset` on: rows [start, stop) of the source's `tensor`."""

    tensor: str
    start: int
    stop: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Block:
    """A segment or a record to write: `nbytes` at `offset` of `file`, both multiples of 4096."""

    file: str
    offset: int
    nbytes: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """`blocks` in order of execution, and the manifest that describes them, its checksums still zero.

    The blocks of the trunk are the manifest's segments, in the same order.
    """

    manifest: Manifest
    blocks: tuple[Block, ...]
    segment_bytes: int | None

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for block in self.blocks)


@dataclass(frozen=True, slots=True)
class _Found:
    """A tensor that the model wants and the source has."""

    spec: TensorSpec
    source: SourceTensor
    item: Item

    @property
    def source_rows_per_row(self) -> int:
        """Rows along the last axis that make one row of the container's matrix."""
        return self.source.rows // self.item.rows


def make_layout(model: Model, source: TensorSource, segment: SegmentSize = "auto") -> Layout:
    """Lays out `source` for `model`, in segments of at most `segment` bytes, or one for each layer.

    Raises IntegrityError naming tensors that this architecture needs and the source lacks, that have another
    shape, or that nobody asked for; UnsupportedModelError naming a dtype that no format keeps; UsageError if
    `segment` is below 4096.
    """
    groups = [(group, _find(group, source)) for group in model.trunk()]
    _check_complete(model, source)
    model_bytes = sum(found.item.nbytes(found.item.rows) for _, tensors in groups for found in tensors)
    segment_bytes = _segment_bytes(segment, model_bytes)
    segments: list[Segment] = []
    blocks: list[Block] = []
    for group, tensors in groups:
        number = 0
        for streamed, run in _by_streaming(tensors):
            for cuts in cut_group([found.item for found in run], segment_bytes):
                offset = blocks[-1].offset + blocks[-1].nbytes if blocks else 0
                nbytes = round_up(cuts[-1].offset + cuts[-1].nbytes, ALIGNMENT)
                parts = tuple(_part(run[cut.index], cut) for cut in cuts)
                name = f"{group.name}/{number}"
                segments.append(Segment(name, group.name, offset, nbytes, 0, streamed, parts))
                blocks.append(
                    Block(TRUNK_NAME, offset, nbytes, tuple(_run(run[cut.index], cut) for cut in cuts))
                )
                number += 1
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        family=model.family,
        config=source.config,
        source=source.identity,
        trunk_file=TRUNK_NAME,
        segments=tuple(segments),
        banks=(),
        files=(),
    )
    return Layout(manifest, tuple(blocks), segment_bytes)


def _segment_bytes(segment: SegmentSize, model_bytes: int) -> int | None:
    if segment == "layer":
        return None
    if segment == "auto":
        return auto_segment_bytes(model_bytes)
    if segment < ALIGNMENT:
        raise UsageError(f"segments of {segment} bytes", hint=f"give at least {ALIGNMENT}")
    return segment // ALIGNMENT * ALIGNMENT


def _find(group: TensorGroup, source: TensorSource) -> list[_Found]:
    """The tensors of `group` that the source has, in order."""
    found = []
    for spec in group.tensors:
        name = _source_name(spec, source)
        if name is not None:
            found.append(_match(spec, source.tensors[name]))
    return found


def _source_name(spec: TensorSpec, source: TensorSource) -> str | None:
    return next((name for name in spec.sources if name in source.tensors), None)


def _match(spec: TensorSpec, tensor: SourceTensor) -> _Found:
    if tensor.shape not in (spec.shape, *spec.other_shapes):
        raise IntegrityError(
            f"tensor {tensor.name} has the shape {list(tensor.shape)}, {list(spec.shape)} by config.json",
            hint="the config belongs to another checkpoint?",
        )
    form = FORMAT_OF_DTYPE.get(tensor.dtype)
    if form is None:
        raise UnsupportedModelError(
            f"tensor {tensor.name} is of dtype {tensor.dtype}, which no format keeps",
            hint=f"supported: {', '.join(FORMAT_OF_DTYPE)}",
        )
    rows = tensor.shape[0] if tensor.shape else 1
    cols = math.prod(tensor.shape[1:])
    splittable = spec.kind != "vector" and not spec.whole
    return _Found(spec, tensor, Item(spec.name, form, rows, cols, splittable))


def _check_complete(model: Model, source: TensorSource) -> None:
    """Every tensor the model needs is there, and every tensor that is there is used or known."""
    specs = [spec for group in model.trunk() for spec in group.tensors]
    missing = [spec.sources[0] for spec in specs if not spec.optional and _source_name(spec, source) is None]
    if missing:
        raise IntegrityError(
            f"{source.path}: {len(missing)} tensors that {model.family} needs are missing:"
            f" {_shorten(missing)}",
            hint="download the checkpoint again, or name the right one",
        )
    used = {_source_name(spec, source) for spec in specs}
    ignored = [re.compile(pattern) for pattern in model.ignored_sources()]
    left = [
        name
        for name in source.tensors
        if name not in used and not any(pattern.fullmatch(name) for pattern in ignored)
    ]
    if left:
        raise IntegrityError(
            f"{source.path}: {len(left)} tensors left over that {model.family} does not use:"
            f" {_shorten(left)}",
            hint="the config belongs to another checkpoint?",
        )


def _shorten(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _by_streaming(tensors: list[_Found]) -> list[tuple[bool, list[_Found]]]:
    """Runs of tensors that are all streamed or all read on demand; a segment is one or the other."""
    runs: list[tuple[bool, list[_Found]]] = []
    for found in tensors:
        streamed = found.spec.kind != "embedding"
        if not runs or runs[-1][0] != streamed:
            runs.append((streamed, []))
        runs[-1][1].append(found)
    return runs


def _part(found: _Found, cut: Cut) -> TensorPart:
    item = found.item
    return TensorPart(item.name, item.format, found.source.shape, cut.start, cut.stop, cut.offset, cut.nbytes)


def _run(found: _Found, cut: Cut) -> Run:
    factor = found.source_rows_per_row
    return Run(found.source.name, cut.start * factor, cut.stop * factor, cut.offset, cut.nbytes)
