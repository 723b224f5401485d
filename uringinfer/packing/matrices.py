"""How a matrix lies in a checkpoint: as floats, as FP8 with block scales, as MXFP4 blocks and scales, or in a
format of the container already.

`find_matrix` looks at the source's tensors and says in which of the container's formats the matrix is kept,
bit for bit, and which source rows make the sections of any range of its rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from uringinfer.errors import IntegrityError, UnsupportedModelError
from uringinfer.kernels.formats import weight_format
from uringinfer.packing.runs import WIDENED, RowsRun, Run, TransposedRun
from uringinfer.packing.source import SourceTensor, TensorSource

FORMAT_OF_DTYPE = {"BF16": "bf16", "F16": "f16", "F32": "f32"}
"""The container's format that keeps a dtype bit for bit."""

_FP8 = "F8_E4M3"
_FP8_FORMATS = {128: "fp8", 64: "fp8_b64", 32: "fp8_b32", 16: "fp8_b16"}
_MXFP4_DTYPES = ("U8", "I8", "F4")
_MXFP4_SCALE_DTYPES = ("U8", "F8_E8M0")
_MXFP4_GROUP = 32
_ALL_ROWS = 1 << 62
"""The unit of a section that all rows share."""


@dataclass(frozen=True, slots=True)
class Section:
    """The source of one section of a format. Matrix rows [r, r + unit) are group `first + r / unit * step`
    of the tensor, `group_rows` source rows each."""

    tensor: str
    first: int
    step: int
    group_rows: int
    unit: int = 1
    is_widened: bool = False
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix [rows, cols] of the container in `format`, and the source of each of its sections.

    `transposed` is set instead of sections for a matrix that the source stores as [in, out]: (tensor, first
    source row, first column, step).
    """

    format: str
    rows: int
    cols: int
    sections: tuple[Section, ...]
    transposed: tuple[str, int, int, int] | None = None

    @property
    def is_read_whole(self) -> bool:
        """Whether any range of its rows takes all of it to read."""
        return self.transposed is not None or any(section.is_whole for section in self.sections)

    def runs(self, start: int, stop: int, offset: int) -> list[Run]:
        """What makes rows [start, stop), packed, at `offset` of a block."""
        form = weight_format(self.format)
        if self.transposed is not None:
            tensor, row, first, step = self.transposed
            nbytes = form.nbytes(stop - start, self.cols)
            first += start * step
            return [TransposedRun(tensor, row, self.cols, first, stop - start, step, offset, nbytes)]
        sizes = form.sections(stop - start, self.cols)
        offsets = form.offsets(stop - start, self.cols)
        return [
            RowsRun(
                tensor=section.tensor,
                first=section.first + start // section.unit * section.step,
                units=-(-(stop - start) // section.unit),
                step=section.step,
                group_rows=section.group_rows,
                offset=offset + place,
                nbytes=size,
                is_widened=section.is_widened,
                is_splittable=not section.is_whole,
            )
            for section, place, size in zip(self.sections, offsets, sizes, strict=False)
        ]


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look for a matrix: a stored matrix (number `index` of those stacked along the tensor's first
    axis, or the only one), of which rows `first`, `first + step`, ... are taken."""

    tensor: str
    index: int | None = None
    first: int = 0
    step: int = 1
    transposed: bool = False
    scales: str | None = None


def find_matrix(source: TensorSource, place: Place, rows: int, cols: int) -> Matrix:
    """The matrix [rows, cols] at `place`, whose tensor the source has.

    Raises IntegrityError if shapes do not fit, UnsupportedModelError if no format keeps the dtype.
    """
    tensor = source.tensors[place.tensor]
    if place.scales is not None:
        return _find_mxfp4(source, place, tensor, rows, cols)
    stored = stored_rows(tensor, place, cols if not place.transposed else None)
    if place.transposed:
        return _find_transposed(tensor, place, rows, cols)
    _check_rows(tensor, place, stored, rows)
    first = _base(place, stored) + place.first
    if tensor.sections:
        return _find_sections(source, tensor, place, rows, cols)
    if tensor.packed_as is not None:
        return Matrix(tensor.packed_as, rows, cols, (Section(place.tensor, first, place.step, 1),))
    if tensor.dtype == _FP8:
        return _find_fp8(source, place, stored, rows, cols)
    # what one row of the container is along the source's last axis: several rows of a convolution, say
    group_rows = tensor.rows // (stored * (1 if place.index is None else tensor.shape[0]))
    return Matrix(float_format(tensor), rows, cols, (Section(place.tensor, first, place.step, group_rows),))


def _find_sections(source: TensorSource, tensor: SourceTensor, place: Place, rows: int, cols: int) -> Matrix:
    """A matrix whose sections the source has as tensors: of a row for each, or of one row for all."""
    parts = [source.tensors[name] for name in tensor.sections]
    sections = tuple(
        Section(part.name, 0, 1, 1, unit=_ALL_ROWS, is_whole=part.is_whole)
        if part.rows == 1 and tensor.shape[0] > 1
        else Section(part.name, place.first, place.step, 1, is_whole=part.is_whole)
        for part in parts
    )
    return Matrix(tensor.packed_as or "", rows, cols, sections)


def float_format(tensor: SourceTensor) -> str:
    """The format that keeps a float tensor; UnsupportedModelError naming it if there is none."""
    form = FORMAT_OF_DTYPE.get(tensor.dtype)
    if form is None:
        raise UnsupportedModelError(
            f"tensor {tensor.name} is of dtype {tensor.dtype}, which no format keeps",
            hint=f"supported: {', '.join(FORMAT_OF_DTYPE)}, FP8 and MXFP4 with their scales",
        )
    return form


def stored_rows(tensor: SourceTensor, place: Place, cols: int | None) -> int:
    """Rows of each matrix stored in `tensor`; its shape must be [rows, ...] or [index, rows, ...] with `cols`
    elements in a row, if given."""
    shape = tensor.shape if place.index is None else tensor.shape[1:]
    stacked = place.index is None or (len(tensor.shape) > 1 and place.index < tensor.shape[0])
    if not stacked or (cols is not None and math.prod(shape[1:]) != cols):
        raise shape_error(
            tensor, f"rows of {cols} elements" if stacked else f"{place.index} and more matrices"
        )
    return shape[0] if shape else 1


def shape_error(tensor: SourceTensor, wanted: str) -> IntegrityError:
    return IntegrityError(
        f"tensor {tensor.name} has the shape {list(tensor.shape)}, {wanted} by config.json",
        hint="the config belongs to another checkpoint?",
    )


def _base(place: Place, stored: int) -> int:
    return 0 if place.index is None else place.index * stored


def _check_rows(tensor: SourceTensor, place: Place, stored: int, rows: int) -> None:
    last = place.first + (rows - 1) * place.step
    if last >= stored or (place.step == 1 and place.first == 0 and place.index is None and stored != rows):
        raise shape_error(tensor, f"{rows} rows from {place.first} in steps of {place.step}")


def _find_transposed(tensor: SourceTensor, place: Place, rows: int, cols: int) -> Matrix:
    shape = tensor.shape if place.index is None else tensor.shape[1:]
    if len(shape) != 2 or shape[0] != cols or place.first + (rows - 1) * place.step >= shape[1]:
        raise shape_error(tensor, f"[{cols}, {rows}] or a multiple, transposed,")
    where = (place.tensor, _base(place, cols), place.first, place.step)
    return Matrix(float_format(tensor), rows, cols, (), where)


def _find_fp8(source: TensorSource, place: Place, stored: int, rows: int, cols: int) -> Matrix:
    """FP8 with a scale for each square block, under `<name>_scale_inv` or as `scale` beside `weight`."""
    names = (
        f"{place.tensor}_scale_inv",
        f"{place.tensor.removesuffix('weight')}scale",
        f"{place.tensor}_scale",
    )
    name = next((name for name in names if name in source.tensors), None)
    if name is None:
        raise UnsupportedModelError(
            f"tensor {place.tensor} is FP8 without block scales", hint=f"{names[0]} was looked for"
        )
    scales = source.tensors[name]
    grid = scales.shape if place.index is None else scales.shape[1:]
    block = next(
        (b for b in _FP8_FORMATS if grid == (-(-stored // b), -(-cols // b)) and scales.dtype in WIDENED),
        None,
    )
    if block is None:
        raise UnsupportedModelError(
            f"tensor {name} ({scales.dtype} {list(scales.shape)}) scales no square blocks of"
            f" {place.tensor} [{stored}, {cols}]",
            hint=f"blocks of {', '.join(map(str, _FP8_FORMATS))} are known",
        )
    if place.step != 1 or place.first % block:
        raise UnsupportedModelError(f"tensor {place.tensor}: parts of FP8 blocks cannot be kept as they are")
    high = grid[0]
    sections = (
        Section(place.tensor, _base(place, stored) + place.first, 1, 1),
        Section(name, _base(place, high) + place.first // block, 1, 1, unit=block, is_widened=True),
    )
    return Matrix(_FP8_FORMATS[block], rows, cols, sections)


def _find_mxfp4(source: TensorSource, place: Place, tensor: SourceTensor, rows: int, cols: int) -> Matrix:
    """Blocks [..., rows, cols / 2] in any grouping, and scales [..., rows, cols / 32]."""
    scales = source.tensors.get(place.scales or "")
    if scales is None:
        raise IntegrityError(f"tensor {place.tensor} is MXFP4, its scales {place.scales} are missing")
    if cols % _MXFP4_GROUP:
        raise UnsupportedModelError(f"tensor {place.tensor}: MXFP4 rows of {cols}, no multiple of 32")
    kinds = (tensor.dtype in _MXFP4_DTYPES, scales.dtype in _MXFP4_SCALE_DTYPES)
    if not all(kinds):
        raise UnsupportedModelError(
            f"tensors {tensor.name} ({tensor.dtype}) and {scales.name} ({scales.dtype}) are no MXFP4",
            hint="expected U8 blocks and U8 scales",
        )
    count = 1 if place.index is None else tensor.shape[0]
    row_bytes, scale_bytes = cols // 2, cols // _MXFP4_GROUP
    stored = tensor.nbytes // (count * row_bytes)
    fits = tensor.nbytes == count * stored * row_bytes and scales.nbytes == count * stored * scale_bytes
    if not fits or not stored or tensor.rows % (count * stored) or scales.rows % (count * stored):
        raise shape_error(tensor, f"MXFP4 blocks of rows of {cols}, with scales {list(scales.shape)},")
    _check_rows(tensor, place, stored, rows)
    first = _base(place, stored) + place.first
    sections = tuple(
        Section(part.name, first, place.step, part.rows // (count * stored)) for part in (tensor, scales)
    )
    return Matrix("mxfp4", rows, cols, sections)
