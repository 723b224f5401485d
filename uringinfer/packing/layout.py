"""Where everything of a checkpoint will lie in its container. Reads no weights and writes nothing.

`make_layout` asks the model for its tensors in order of execution, finds each in the source, and gives
blocks: parts of the container's files that are written, checked and resumed as one. A block says which rows
of which source tensors it is made of; what no run covers is zero.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from uringinfer.container.codebooks import codebook_names
from uringinfer.container.manifest import ALIGNMENT, FORMAT_VERSION, Bank, Manifest, Segment, TensorPart
from uringinfer.errors import IntegrityError, UsageError
from uringinfer.kernels.formats import weight_format
from uringinfer.kernels.weight_format import Floats
from uringinfer.models.base import Model, TensorGroup, TensorSpec
from uringinfer.packing.banks import PlannedBank, missing_expert_tensors, plan_bank
from uringinfer.packing.codebook_encoder import CodebookEncoder
from uringinfer.packing.conversion import ConvertedMatrix, encoder_of, read_floats
from uringinfer.packing.matrices import Matrix, Place, find_matrix, shape_error
from uringinfer.packing.recipe import Recipe, Role
from uringinfer.packing.runs import Run
from uringinfer.packing.segments import MAX_AUTO_BYTES, Cut, Item, auto_segment_bytes, cut_group, round_up
from uringinfer.packing.source import TensorSource
from uringinfer.units import as_bytes

TRUNK_NAME = "trunk.bin"

SegmentSize = int | Literal["layer", "auto"]
_SHOWN = 8


def as_segment_size(value: int | str) -> SegmentSize:
    """What somebody gave as a segment's size: "layer", "auto", bytes, or text such as "64M".

    Raises UsageError for anything else."""
    if value == "layer":
        return "layer"
    if value == "auto":
        return "auto"
    nbytes = as_bytes(value, "the segment")
    if nbytes is None:
        raise UsageError("a segment has no size", hint="give 'auto', 'layer' or a size such as '64M'")
    return nbytes


@dataclass(frozen=True, slots=True)
class Block:
    """A segment or a record to write: `nbytes` at `offset` of `file`, both multiples of 4096.

    `runs` makes what it consists of, in order of offset.
    """

    file: str
    offset: int
    nbytes: int
    runs: Callable[[], Sequence[Run]]


@dataclass(frozen=True, slots=True)
class Layout:
    """`blocks` in order of execution, and the manifest that describes them, its checksums still zero.

    The blocks are the manifest's segments, then the records of each of its banks, in the same order.
    """

    manifest: Manifest
    blocks: tuple[Block, ...]
    segment_bytes: int | None
    notes: tuple[str, ...] = ()
    """What a person should know about the formats that were chosen."""
    conversions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How many tensors change from one format to another; an expert's count one by one."""
    quantised: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How many tensors that were quantised in the source, in this format, get which."""
    codebooks: tuple[CodebookEncoder, ...] = ()
    """Where each codebook comes from, in the order of codebooks.bin."""

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for block in self.blocks)


@dataclass(frozen=True, slots=True)
class _Found:
    """A tensor of the trunk that the model wants and the source has, in the shape that it has there.
    `sources` are the tensors that it takes."""

    spec: TensorSpec
    shape: tuple[int, ...]
    matrix: Matrix | ConvertedMatrix
    sources: tuple[str, ...]
    role: Role

    @property
    def item(self) -> Item:
        splittable = self.spec.kind != "vector" and not self.spec.whole
        return Item(self.spec.name, self.matrix.format, self.matrix.rows, self.matrix.cols, splittable)


def make_layout(
    model: Model, source: TensorSource, segment: SegmentSize = "auto", recipe: Recipe | None = None
) -> Layout:
    """Lays out `source` for `model`, in segments of at most `segment` bytes, or one for each layer, in the
    formats of `recipe`; without one, all weights are kept.

    Raises IntegrityError naming tensors that this architecture needs and the source lacks, that have another
    shape, or that nobody asked for; UnsupportedModelError naming a dtype that no format keeps; UsageError if
    `segment` is below 4096, or if the recipe has a rule that nothing matches or that cannot be followed.
    """
    recipe = recipe or Recipe()
    _check_present(model, source)
    groups = [(group, _find(group, source, recipe)) for group in model.trunk()]
    planned = [plan_bank(layer, source, recipe) for layer in model.expert_layers()]
    trunk = [tensor for _, found in groups for tensor in found]
    names = [tensor.spec.name for tensor in trunk]
    recipe.check_used([*names, *(name for bank in planned for name in bank.tensor_names)])
    given = {(name, tensor.matrix.format) for tensor in trunk for name in tensor.sources}
    given = given.union(*(bank.given for bank in planned))
    _check_nothing_left(model, source, {name for name, _ in given})
    trunk_bytes = sum(tensor.item.nbytes(tensor.matrix.rows) for tensor in trunk)
    segment_bytes = _segment_bytes(segment, trunk_bytes)
    segments, blocks = _lay_trunk(groups, segment_bytes)
    for bank in planned:
        blocks += _lay_bank(bank, source)
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        family=model.family,
        config=source.config,
        source=source.identity,
        trunk_file=TRUNK_NAME,
        segments=tuple(segments),
        banks=tuple(bank.bank for bank in planned),
        files=(),
    )
    conversions = Counter(
        (tensor.matrix.origin, tensor.matrix.format)
        for tensor in trunk
        if isinstance(tensor.matrix, ConvertedMatrix)
    )
    for bank in planned:
        conversions.update(bank.conversions())
    encoders = [tensor.matrix.encoder for tensor in trunk if isinstance(tensor.matrix, ConvertedMatrix)]
    encoders += [encoder for bank in planned for encoder in bank.encoders.values()]
    learning = {encoder.name: encoder for encoder in encoders if isinstance(encoder, CodebookEncoder)}
    codebooks = [learning[name] for name in codebook_names(manifest.segments, manifest.banks)]
    tables = {tensor.spec.name: tensor.matrix.format for tensor in trunk if tensor.role == "table"}
    unchanged = {tensor.spec.name for tensor in trunk if isinstance(tensor.matrix, Matrix)}
    notes = recipe.table_notes(tables, unchanged)
    quantised = _count_quantised(source, given)
    return Layout(manifest, tuple(blocks), segment_bytes, notes, conversions, quantised, tuple(codebooks))


def _count_quantised(source: TensorSource, given: set[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
    """See `Layout.quantised`; `given` are names of the source's tensors, and the formats that they get."""
    origins = ((source.tensors[name], form) for name, form in given)
    kinds = ((tensor.packed_as, form) for tensor, form in origins)
    return Counter((origin, form) for origin, form in kinds if origin is not None)


def cut_trunk(model: Model, source: TensorSource, segment: SegmentSize) -> tuple[Segment, ...]:
    """The segments that `make_layout` would make of `source`, which it must have accepted before."""
    groups = [(group, _find(group, source, Recipe())) for group in model.trunk()]
    nbytes = sum(tensor.item.nbytes(tensor.matrix.rows) for _, found in groups for tensor in found)
    return tuple(_lay_trunk(groups, _segment_bytes(segment, nbytes))[0])


def _segment_bytes(segment: SegmentSize, model_bytes: int) -> int | None:
    if segment == "layer":
        return None
    if segment == "auto":
        return auto_segment_bytes(model_bytes)
    if segment < ALIGNMENT:
        raise UsageError(f"segments of {segment} bytes", hint=f"give at least {ALIGNMENT}")
    return segment // ALIGNMENT * ALIGNMENT


def _lay_trunk(
    groups: Sequence[tuple[TensorGroup, list[_Found]]], segment_bytes: int | None
) -> tuple[list[Segment], list[Block]]:
    segments: list[Segment] = []
    blocks: list[Block] = []
    end = 0
    for group, found in groups:
        number = 0
        # 'layer' is meant for layers: a head as one segment would be the largest slot of the ring.
        is_layer = group.name.startswith("layers.")
        bound = MAX_AUTO_BYTES if segment_bytes is None and not is_layer else segment_bytes
        for streamed, tensors in _by_streaming(found):
            for cuts in cut_group([tensor.item for tensor in tensors], bound):
                nbytes = round_up(cuts[-1].offset + cuts[-1].nbytes, ALIGNMENT)
                parts = tuple(_part(tensors[cut.index], cut) for cut in cuts)
                name = f"{group.name}/{number}"
                segments.append(Segment(name, group.name, end, nbytes, 0, streamed, parts))
                blocks.append(Block(TRUNK_NAME, end, nbytes, partial(_segment_runs, tensors, cuts)))
                end += nbytes
                number += 1
    return segments, blocks


def _by_streaming(found: list[_Found]) -> list[tuple[bool, list[_Found]]]:
    """Runs of tensors that are all streamed or all read on demand; a segment is one or the other."""
    runs: list[tuple[bool, list[_Found]]] = []
    for tensor in found:
        streamed = tensor.spec.kind != "embedding"
        if not runs or runs[-1][0] != streamed:
            runs.append((streamed, []))
        runs[-1][1].append(tensor)
    return runs


def _part(tensor: _Found, cut: Cut) -> TensorPart:
    name, form = tensor.spec.name, tensor.matrix.format
    return TensorPart(name, weight_format(form), tensor.shape, cut.start, cut.stop, cut.offset, cut.nbytes)


def _segment_runs(tensors: Sequence[_Found], cuts: Sequence[Cut]) -> list[Run]:
    return [run for cut in cuts for run in tensors[cut.index].matrix.runs(cut.start, cut.stop, cut.offset)]


def _lay_bank(planned: PlannedBank, source: TensorSource) -> list[Block]:
    bank: Bank = planned.bank
    return [
        Block(
            bank.file,
            expert * bank.record_bytes,
            bank.record_bytes,
            partial(planned.record_runs, source, expert),
        )
        for expert in range(bank.num_experts)
    ]


def _find(group: TensorGroup, source: TensorSource, recipe: Recipe) -> list[_Found]:
    """The tensors of `group` that the source has, in order."""
    found = []
    for spec in group.tensors:
        name = _source_name(spec, source)
        if name is not None:
            found.append(_match(spec, name, source, recipe, _role(group, spec)))
    return found


def _role(group: TensorGroup, spec: TensorSpec) -> Role:
    if spec.kind == "vector" or spec.exact:
        return "exact"
    if spec.kind == "embedding" or group.name == "head":
        return "table"
    return "heads" if spec.whole else "trunk"


def _source_name(spec: TensorSpec, source: TensorSource) -> str | None:
    return next((name for name in spec.sources if name in source.tensors), None)


def _match(spec: TensorSpec, name: str, source: TensorSource, recipe: Recipe, role: Role) -> _Found:
    tensor = source.tensors[name]
    shape = tensor.shape
    if shape not in (spec.shape, *spec.other_shapes):
        raise shape_error(tensor, str(list(spec.shape)))
    matrix = find_matrix(source, Place(name), shape[0] if shape else 1, math.prod(shape[1:]))
    sources = tuple(section.tensor for section in matrix.sections)
    wanted = recipe.choose(spec.name, role, shape, matrix.format)
    if wanted == matrix.format:
        return _Found(spec, shape, matrix, sources, role)
    kind = re.sub(r"^layers\.\d+\.", "", spec.name)

    def rows_of(_: int, start: int, stop: int) -> Floats:
        return read_floats(source, matrix, spec.name, start, stop)

    encoder = encoder_of(wanted, spec.name, rows_of, 1, matrix.rows, matrix.cols, seed=recipe.seed)
    return _Found(
        spec, shape, ConvertedMatrix(matrix, encoder, spec.name, kind, matrix.format), sources, role
    )


def _check_present(model: Model, source: TensorSource) -> None:
    """Raises IntegrityError unless the source has every tensor that the model needs."""
    missing = [
        spec.sources[0]
        for group in model.trunk()
        for spec in group.tensors
        if not spec.optional and _source_name(spec, source) is None
    ]
    for layer in model.expert_layers():
        missing += missing_expert_tensors(layer, source)
    if missing:
        raise IntegrityError(
            f"{source.path}: {len(missing)} tensors that {model.family} needs are missing:"
            f" {_shorten(missing)}",
            hint="download the checkpoint again, or name the right one",
        )


def _check_nothing_left(model: Model, source: TensorSource, used: set[str]) -> None:
    """Raises IntegrityError unless every tensor of the source is used or known to be left out."""
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
