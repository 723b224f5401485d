"""The bank of a layer's routed experts: which source rows make each expert's record.

Checkpoints spell experts in many ways (`ExpertSource`); a record is always the same: the parts in the order
that the layer declares, each at a multiple of 64, the whole padded to 4096. Every expert's tensors are looked
at here, so that a missing or odd one is named before anything is written; runs are made when they are needed,
for a large model has half a million of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from uringinfer.container.codebooks import expert_codebook
from uringinfer.container.manifest import ALIGNMENT, Bank, TensorPart
from uringinfer.errors import IntegrityError, UnsupportedModelError, UsageError
from uringinfer.kernels.formats import weight_format
from uringinfer.kernels.weight_format import Floats
from uringinfer.models.base import ExpertLayer, ExpertPart, ExpertSource
from uringinfer.packing.conversion import ConvertedMatrix, Encoder, encoder_of, read_floats
from uringinfer.packing.matrices import Matrix, Place, find_matrix, shape_error
from uringinfer.packing.recipe import Recipe
from uringinfer.packing.runs import WIDENED, ElementsRun, Run
from uringinfer.packing.segments import ALIGN, round_up
from uringinfer.packing.source import DTYPE_BITS, SourceTensor, TensorSource

_EXPERT = "{expert}"


@dataclass(frozen=True, slots=True)
class PlannedBank:
    """The bank as the manifest describes it (checksums zero), and where its parts lie in the source.
    `encoders` are those of the parts that change their format, by name, `origins` what the source has."""

    bank: Bank
    layer: ExpertLayer
    chosen: tuple[ExpertSource, ...]
    encoders: Mapping[str, Encoder]
    origins: Mapping[str, str]
    given: frozenset[tuple[str, str]]
    """The names of the source's tensors that it takes, and the format that each gets."""

    @property
    def tensor_names(self) -> list[str]:
        """The parts' names, as a recipe's rules and `info --tensors` know them."""
        return [tensor_name(self.bank.layer, part.name) for part in self.bank.parts]

    def record_runs(self, source: TensorSource, expert: int) -> list[Run]:
        """What the record of `expert` is made of."""
        runs: list[Run] = []
        for part, kept, where in zip(self.layer.parts, self.bank.parts, self.chosen, strict=True):
            if len(part.shape) == 1:
                runs.append(_bias_run(source, part, where, expert, kept.offset))
            else:
                runs += self._matrix(source, part, where, expert).runs(0, part.shape[0], kept.offset)
        return runs

    def _matrix(
        self, source: TensorSource, part: ExpertPart, where: ExpertSource, expert: int
    ) -> Matrix | ConvertedMatrix:
        matrix = _matrix(source, part, where, expert)
        encoder = self.encoders.get(part.name)
        if encoder is None:
            return matrix
        name = tensor_name(self.layer.layer, part.name, expert)
        return ConvertedMatrix(matrix, encoder, name, f"experts.{part.name}", self.origins[part.name])

    def conversions(self) -> dict[tuple[str, str], int]:
        """How many matrices go from what the source has to another format."""
        changes = Counter((self.origins[name], self.encoders[name].form.name) for name in self.encoders)
        return {change: parts * self.bank.num_experts for change, parts in changes.items()}


def missing_expert_tensors(layer: ExpertLayer, source: TensorSource) -> list[str]:
    """The tensors of `layer` that the source lacks, under the first of their names."""
    missing = []
    for part in layer.parts:
        where = _choose(part, source) or part.sources[0]
        names = dict.fromkeys(_names(where, expert)[0] for expert in range(layer.count))
        missing += [name for name in names if name not in source.tensors]
    return missing


def tensor_name(layer: int, part: str, expert: int | str = "*") -> str:
    """What a part of an expert is called, or that of all experts of a layer."""
    return expert_codebook(layer, part).replace("*", str(expert))


def plan_bank(layer: ExpertLayer, source: TensorSource, recipe: Recipe) -> PlannedBank:
    """The bank of `layer`, whose tensors the source has, in the formats of `recipe`.

    Raises IntegrityError for shapes that do not fit or differ between experts, UnsupportedModelError for
    a dtype that no format keeps, UsageError for a rule of the recipe that cannot be followed.
    """
    chosen = tuple(_choose(part, source) or part.sources[0] for part in layer.parts)
    parts: list[TensorPart] = []
    encoders: dict[str, Encoder] = {}
    origins: dict[str, str] = {}
    given: set[tuple[str, str]] = set()
    end = 0
    for part, where in zip(layer.parts, chosen, strict=True):
        kept, tensors = _check_experts(layer, part, where, source)
        form = _choose_format(recipe, layer, part, kept)
        given.update((name, form) for name in tensors)
        if form != kept:
            encoders[part.name] = _encoder(form, layer, part, where, source, recipe.seed)
            origins[part.name] = kept
        offset = round_up(end, ALIGN)
        rows = part.shape[0]
        cols = part.shape[1] if len(part.shape) > 1 else 1
        nbytes = weight_format(form).nbytes(rows, cols)
        parts.append(TensorPart(part.name, weight_format(form), part.shape, 0, rows, offset, nbytes))
        end = offset + nbytes
    _check_coverage(layer, chosen, source)
    bank = Bank(
        layer=layer.layer,
        file=f"experts-L{layer.layer}.bin",
        num_experts=layer.count,
        record_bytes=round_up(end, ALIGNMENT),
        parts=tuple(parts),
        crc32=(0,) * layer.count,
    )
    return PlannedBank(bank, layer, chosen, encoders, origins, frozenset(given))


def _encoder(
    form: str, layer: ExpertLayer, part: ExpertPart, where: ExpertSource, source: TensorSource, seed: int
) -> Encoder:
    """The encoder of `part` of all experts of the layer."""

    def rows_of(expert: int, start: int, stop: int) -> Floats:
        name = tensor_name(layer.layer, part.name, expert)
        return read_floats(source, _matrix(source, part, where, expert), name, start, stop)

    kind = expert_codebook(layer.layer, part.name)
    return encoder_of(form, kind, rows_of, layer.count, part.shape[0], part.shape[1], seed=seed)


def _choose_format(recipe: Recipe, layer: ExpertLayer, part: ExpertPart, kept: str) -> str:
    name = tensor_name(layer.layer, part.name)
    is_matrix = len(part.shape) == 2
    form = recipe.choose(name, "expert" if is_matrix else "exact", part.shape, kept)
    if form != kept and not is_matrix:
        raise UsageError(f"{name} is a bias, which stays {kept}", hint="leave it out of --tensor")
    return form


def _choose(part: ExpertPart, source: TensorSource) -> ExpertSource | None:
    """The first of the part's alternatives that the source has."""
    return next((where for where in part.sources if _names(where, 0)[0] in source.tensors), None)


def _names(where: ExpertSource, expert: int) -> tuple[str, str | None]:
    """The tensor of `expert` and that of its MXFP4 scales."""
    scales = where.scales.replace(_EXPERT, str(expert)) if where.scales is not None else None
    return where.name.replace(_EXPERT, str(expert)), scales


def _matrix(source: TensorSource, part: ExpertPart, where: ExpertSource, expert: int) -> Matrix:
    name, scales = _names(where, expert)
    index = None if _EXPERT in where.name else expert
    place = Place(name, index, where.first, where.step, where.transposed, scales)
    return find_matrix(source, place, part.shape[0], part.shape[1])


def _bias_run(
    source: TensorSource, part: ExpertPart, where: ExpertSource, expert: int, offset: int
) -> ElementsRun:
    tensor = source.tensors[_names(where, expert)[0]]
    stacked = _EXPERT not in where.name
    shape = tensor.shape[1:] if stacked else tensor.shape
    if len(shape) != 1 or where.first + (part.shape[0] - 1) * where.step >= shape[0]:
        raise shape_error(tensor, f"vectors of {part.shape[0]} elements")
    if tensor.dtype not in WIDENED:
        raise UnsupportedModelError(f"tensor {tensor.name} is of dtype {tensor.dtype}, no float")
    # a single vector is as many rows of one element, a stack of them has one in a row
    row, rows = (expert, 1) if stacked else (0, shape[0])
    return ElementsRun(tensor.name, row, rows, where.first, part.shape[0], where.step, offset)


def _check_experts(
    layer: ExpertLayer, part: ExpertPart, where: ExpertSource, source: TensorSource
) -> tuple[str, set[str]]:
    """The format that all experts of the layer have for `part`, and the tensors it takes."""
    forms: dict[str, str] = {}
    used: set[str] = set()
    for expert, name in _distinct(layer, where):
        if len(part.shape) == 1:
            _bias_run(source, part, where, expert, 0)
            forms["f32"] = name
            used.add(name)
        else:
            matrix = _matrix(source, part, where, expert)
            forms[matrix.format] = name
            used |= {section.tensor for section in matrix.sections} | {name}
    if len(forms) > 1:
        (one, first), (other, second), *_ = forms.items()
        raise IntegrityError(f"layer {layer.layer}: {first} is {one}, but {second} is {other}")
    return next(iter(forms)), used


def _distinct(layer: ExpertLayer, where: ExpertSource) -> Iterator[tuple[int, str]]:
    """(expert, tensor) of every tensor to look at; of stacked ones the last expert's place says all."""
    experts = range(layer.count) if _EXPERT in where.name else (layer.count - 1,)
    return ((expert, _names(where, expert)[0]) for expert in experts)


def _check_coverage(layer: ExpertLayer, chosen: tuple[ExpertSource, ...], source: TensorSource) -> None:
    """Every element of a tensor that holds several parts belongs to one of them."""
    taken: Counter[str] = Counter()
    packed = set()
    for part, where in zip(layer.parts, chosen, strict=True):
        name = _names(where, 0)[0]
        size = part.shape[0] * (part.shape[1] if len(part.shape) > 1 else 1)
        taken[name] += size * (1 if _EXPERT in where.name else layer.count)
        if where.scales is not None:
            packed.add(name)
    for name, elements in taken.items():
        tensor = source.tensors[name]
        if elements != (2 * tensor.nbytes if name in packed else _elements(tensor)):
            raise shape_error(tensor, f"{elements} elements for {layer.count} experts")


def _elements(tensor: SourceTensor) -> int:
    if tensor.packed_as is not None:
        return math.prod(tensor.shape)
    return tensor.nbytes * 8 // DTYPE_BITS[tensor.dtype]
