"""Matrices that change their format on the way into a container, and what that costs.

A `ConvertedMatrix` stands where a `Matrix` does: it makes the runs of any range of rows. Its first run
decodes the source's rows a tile at a time, encodes them, gives the codes, and holds back what follows them
(scales, some hundredth of the bytes) for the runs behind it. So a matrix of any size passes through the
writer's small buffer, and no tile depends on where another one began: the same bytes from any buffer and any
number of jobs.

`Encoder` is the seam for formats. Most need nothing but the rows. One that learns from all weights of a layer
before it can encode any (codebooks) is an encoder of its own (`codebook_encoder`), made once for the layer
and the kind of matrix by `encoder_of`; it fits when it is first asked to encode, from rows that it draws with
the pack's seed through `read_floats`, so that an interrupted pack fits the same again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import IntegrityError
from uringinfer.kernels.formats import WeightFormat, weight_format
from uringinfer.kernels.weight_format import Floats
from uringinfer.packing.codebook_encoder import CodebookEncoder, Rows
from uringinfer.packing.matrices import Matrix
from uringinfer.packing.runs import HeldRun, Run
from uringinfer.packing.source import Bytes, TensorSource

_TILE_WEIGHTS = 1 << 18
"""Weights that are decoded and encoded at once: 1 MiB of float32 stays in a processor's cache."""

Doubles = NDArray[np.float64]


class Encoder(Protocol):
    """Rows of float32 to the sections of one format and back. Callable from any thread."""

    @property
    def form(self) -> WeightFormat: ...

    def encode(self, rows: Floats) -> Sequence[NDArray[np.generic]]:
        """The sections of rows [n, cols]; n is a multiple of the format's granularity, or the matrix ends."""
        ...

    def decode(self, sections: Sequence[Bytes], rows: int, cols: int) -> Floats:
        """What `encode` made of [rows, cols] is worth."""
        ...


@dataclass(frozen=True, slots=True)
class PlainEncoder:
    """The encoder of a format that needs to know nothing but the rows."""

    form: WeightFormat

    def encode(self, rows: Floats) -> Sequence[NDArray[np.generic]]:
        """See `Encoder.encode`."""
        return self.form.to_sections(rows)

    def decode(self, sections: Sequence[Bytes], rows: int, cols: int) -> Floats:
        """See `Encoder.decode`."""
        out = np.zeros((rows, cols), np.float32)
        self.form.decode_into(sections, cols, slice(0, rows), out)
        return out


def encoder_of(
    name: str, kind: str, rows_of: Rows, count: int, rows: int, cols: int, *, seed: int
) -> Encoder:
    """The encoder in the format `name` of `count` matrices [rows, cols] that belong together as `kind`; a
    format that learns from them is given their rows by `rows_of`, and draws with `seed`. Raises UsageError if
    there is no such format."""
    form = weight_format(name)
    if form.bind is None:
        return PlainEncoder(form)
    return CodebookEncoder(form, kind, rows_of, count, rows, cols, seed=seed)


@dataclass(frozen=True, slots=True)
class Squares:
    """What a tensor, or a part of one, lost: the squared Frobenius norms of the difference and the source."""

    tensor: str
    kind: str
    origin: str
    format: str
    error: float
    norm: float


@dataclass(frozen=True, slots=True)
class ConvertedMatrix:
    """`kept`, which the source holds, in the encoder's format instead.

    `tensor` and `kind` name it in messages and in the report of errors; `origin` is what the source stores.
    """

    kept: Matrix
    encoder: Encoder
    tensor: str
    kind: str
    origin: str

    @property
    def format(self) -> str:
        return self.encoder.form.name

    @property
    def rows(self) -> int:
        return self.kept.rows

    @property
    def cols(self) -> int:
        return self.kept.cols

    def runs(self, start: int, stop: int, offset: int) -> list[Run]:
        """What makes rows [start, stop), packed, at `offset` of a block; to be read in order, once."""
        form = self.encoder.form
        offsets = form.offsets(stop - start, self.cols)
        panel = _Panel(self, start, stop)
        codes = CodesRun(panel, offset, form.sections(stop - start, self.cols)[0])
        rest = zip(panel.held, offsets[1:], strict=False)
        return [codes, *(HeldRun(held, offset + place) for held, place in rest)]

    def floats(self, source: TensorSource, start: int, stop: int) -> Floats:
        """See `read_floats`."""
        return read_floats(source, self.kept, self.tensor, start, stop)


def read_floats(source: TensorSource, kept: Matrix, tensor: str, start: int, stop: int) -> Floats:
    """Rows [start, stop) of `kept` as the source has them -> float32 [stop - start, cols].

    Raises IntegrityError, naming `tensor`, for infinities and NaNs, which would make every error meaningless.
    """
    form = weight_format(kept.format)
    low = start // form.row_granularity * form.row_granularity
    packed = np.empty(form.nbytes(stop - low, kept.cols), np.uint8)
    for run in kept.runs(low, stop, 0):
        run.read(source, 0, run.units, packed[run.offset : run.offset + run.nbytes])
    rows = form.decode(packed, stop - low, kept.cols)
    _check_finite(tensor, rows, "cannot be converted", f"keep it: --tensor '{tensor}=keep'")
    return rows[start - low :]


def _check_finite(tensor: str, rows: Floats, problem: str, hint: str) -> None:
    if not np.isfinite(rows).all():
        raise IntegrityError(f"tensor {tensor} holds infinities or NaNs, {problem}", hint=hint)


class _Panel:
    """Rows [start, stop) of a matrix on their way: what is held back of them, and their errors so far."""

    def __init__(self, matrix: ConvertedMatrix, start: int, stop: int) -> None:
        self.matrix = matrix
        self.start = start
        self.stop = stop
        form = matrix.encoder.form
        self.held = [np.zeros(size, np.uint8) for size in form.sections(stop - start, matrix.cols)[1:]]
        # a tile must be whole in both formats, or a block of the source would be decoded twice
        self.unit_rows = math.lcm(form.row_granularity, weight_format(matrix.kept.format).row_granularity)
        self.tile_units = max(1, _TILE_WEIGHTS // (self.unit_rows * matrix.cols))
        self._errors: list[Doubles] = []
        self._norms: list[Doubles] = []
        self._whole: Floats | None = None

    @property
    def units(self) -> int:
        return -(-(self.stop - self.start) // self.unit_rows)

    def convert(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        """Encodes units [start, stop): the codes into `out`, the rest is held."""
        done = 0
        for unit in range(start, stop, self.tile_units):
            first = unit * self.unit_rows
            last = min(min(unit + self.tile_units, stop) * self.unit_rows, self.stop - self.start)
            sections = self._encode(source, first, last)
            out[done : done + sections[0].size] = sections[0]
            done += sections[0].size
            places = self.matrix.encoder.form.sections(first, self.matrix.cols)[1:]
            for held, place, section in zip(self.held, places, sections[1:], strict=True):
                held[place : place + section.size] = section

    def _encode(self, source: TensorSource, first: int, last: int) -> list[Bytes]:
        matrix = self.matrix
        rows = self._floats(source, first, last)
        encoded = matrix.encoder.encode(rows)
        sections = [np.ascontiguousarray(section).reshape(-1).view(np.uint8) for section in encoded]
        worth = matrix.encoder.decode(sections, last - first, matrix.cols)
        _check_finite(matrix.tensor, worth, f"beyond what {matrix.format} can hold", "choose bf16 or f32")
        self._errors.append(_row_squares(worth - rows))
        self._norms.append(_row_squares(rows))
        return sections

    def _floats(self, source: TensorSource, first: int, last: int) -> Floats:
        """Rows [first, last) of the panel; what the source gives only as a whole is read once."""
        matrix = self.matrix
        if not matrix.kept.is_read_whole:
            return matrix.floats(source, self.start + first, self.start + last)
        if self._whole is None:
            self._whole = matrix.floats(source, self.start, self.stop)
        return self._whole[first:last]

    def squares(self) -> Squares:
        """What the panel lost, once it is converted whole. Exact sums: no order of adding can show."""
        matrix = self.matrix
        error, norm = (math.fsum(np.concatenate(parts)) for parts in (self._errors, self._norms))
        return Squares(matrix.tensor, matrix.kind, matrix.origin, matrix.format, error, norm)


def _row_squares(rows: Floats) -> Doubles:
    """The sum of squares of each row [n, cols] -> float64 [n]; a row's does not depend on its neighbours."""
    squares: Doubles = np.square(rows, dtype=np.float64).sum(axis=1)
    return squares


@dataclass(frozen=True, slots=True)
class CodesRun:
    """The first section of a panel. A unit is as many rows as both formats need to start afresh."""

    panel: _Panel
    offset: int
    nbytes: int
    is_splittable: bool = True

    @property
    def units(self) -> int:
        return self.panel.units

    @property
    def unit_bytes(self) -> int:
        return self.panel.matrix.encoder.form.sections(self.panel.unit_rows, self.panel.matrix.cols)[0]

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        """See `Run.read`."""
        self.panel.convert(source, start, stop, out)


def squares_of(runs: Iterable[Run]) -> list[Squares]:
    """What the conversions among `runs` lost, after all of them were read."""
    return [run.panel.squares() for run in runs if isinstance(run, CodesRun)]
