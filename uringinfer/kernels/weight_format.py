"""What a weight format is: named sections of bytes, an encoder and a decoder of rows.

A packed matrix [rows, cols] is one run of bytes. Its sections (codes, then scales) follow one another, each
at a multiple of `SECTION_ALIGN` bytes from the start of the run; the run ends where the last section ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SECTION_ALIGN = 64

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
RowIndex = slice | NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """One format.

    `sections(rows, cols)` gives the bytes of each section. `encode_sections(matrix)` gives the sections of a
    float32 matrix [rows, cols]. `decode_into(sections, cols, index, out)` writes the rows `index` of a packed
    matrix into `out` [n, cols]; `out` must hold zeros or the result of an earlier call for the same format,
    which lets a decoder write only the bytes that can differ. A panel of rows starts and ends at a multiple
    of `row_granularity` rows (or at the end of the matrix). `bits_per_weight` leaves out what only very
    small matrices notice (padding between sections, incomplete blocks). `group` columns of a row share a
    scale, 1 where there are none.

    A format with `stages` needs a codebook, float32 [stages, 256, 8], which is no part of the packed matrix:
    `encode_sections` takes it after the matrix, `decode_into` as one more section behind the others.
    """

    name: str
    bits_per_weight: float
    row_granularity: int
    sections: Callable[[int, int], tuple[int, ...]]
    encode_sections: Callable[..., Sequence[NDArray[np.generic]]]
    decode_into: Callable[[Sequence[Bytes], int, RowIndex, Floats], None]
    group: int = 1
    stages: int = 0

    def offsets(self, rows: int, cols: int) -> tuple[int, ...]:
        """Where each section starts, in bytes from the start of the run, and last, where the run ends."""
        sizes = self.sections(rows, cols)
        starts = [0]
        for size in sizes[:-1]:
            starts.append(-(-(starts[-1] + size) // SECTION_ALIGN) * SECTION_ALIGN)
        return (*starts, starts[-1] + sizes[-1])

    def nbytes(self, rows: int, cols: int) -> int:
        """Bytes of a packed matrix."""
        return self.offsets(rows, cols)[-1]

    def split(self, data: Bytes, rows: int, cols: int) -> list[Bytes]:
        """The sections of a packed matrix, as views. Raises ValueError if `data` has not `nbytes` bytes."""
        offsets = self.offsets(rows, cols)
        if data.dtype != np.uint8 or data.shape != (offsets[-1],):
            raise ValueError(
                f"{self.name} [{rows}, {cols}] takes {offsets[-1]} bytes, not {data.shape} of {data.dtype}"
            )
        sizes = self.sections(rows, cols)
        return [data[start : start + size] for start, size in zip(offsets, sizes, strict=False)]

    def join(self, rows: int, cols: int, sections: Sequence[NDArray[np.generic]]) -> Bytes:
        """A packed matrix [nbytes] from its sections, of any dtype and shape with the right number of bytes.

        This is how a checkpoint that is already packed enters: bit for bit. Raises ValueError if a section
        has the wrong size.
        """
        data = np.zeros(self.nbytes(rows, cols), np.uint8)
        views = self.split(data, rows, cols)
        for number, (view, section) in enumerate(zip(views, sections, strict=True)):
            if section.nbytes != view.size:
                raise ValueError(
                    f"section {number} of {self.name} [{rows}, {cols}] takes {view.size} bytes,"
                    f" not {section.nbytes}"
                )
            view[:] = np.ascontiguousarray(section).reshape(-1).view(np.uint8)
        return data

    def with_codebook(self, sections: list[Bytes], codebook: Floats | None) -> list[Bytes]:
        """What `decode_into` takes: the sections of a packed matrix, and behind them the codebook, if the
        format needs one. Raises ValueError if it is not there or not of the right shape."""
        if not self.stages:
            return sections
        if codebook is None or codebook.dtype != np.float32 or codebook.shape != (self.stages, 256, 8):
            shape = None if codebook is None else codebook.shape
            raise ValueError(f"{self.name} needs a codebook, float32 [{self.stages}, 256, 8], not {shape}")
        return [*sections, np.ascontiguousarray(codebook).reshape(-1).view(np.uint8)]

    def encode(self, matrix: Floats, codebook: Floats | None = None) -> Bytes:
        """float32 [rows, cols] -> uint8 [nbytes]."""
        rows, cols = matrix.shape
        shared = [codebook] if self.stages else []
        self.with_codebook([], codebook)
        return self.join(rows, cols, self.encode_sections(np.ascontiguousarray(matrix, np.float32), *shared))

    def decode(self, data: Bytes, rows: int, cols: int, codebook: Floats | None = None) -> Floats:
        """uint8 [nbytes] -> float32 [rows, cols]."""
        out = np.zeros((rows, cols), np.float32)
        sections = self.with_codebook(self.split(data, rows, cols), codebook)
        self.decode_into(sections, cols, slice(0, rows), out)
        return out


def finite(name: str, matrix: Floats) -> Floats:
    """`matrix` itself. Raises ValueError if it holds an infinity or NaN, which format `name` cannot scale."""
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} cannot hold the infinities or NaNs of this matrix {matrix.shape}")
    return matrix


def in_groups(matrix: Floats, group: int) -> Floats:
    """[rows, cols] -> [rows, ceil(cols / group), group], the last group padded with zeros."""
    rows, cols = matrix.shape
    return np.pad(matrix, ((0, 0), (0, -cols % group))).reshape(rows, -1, group)
