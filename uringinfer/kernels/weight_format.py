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


@dataclass(frozen=True, slots=True, eq=False)
class WeightFormat:
    """One format. It is itself alone: no two are equal.

    `sections(rows, cols)` gives the bytes of each section. `decode_into(sections, cols, index, out)` writes
    the rows `index` of a packed matrix into `out` [n, cols]; `out` must hold zeros or the result of an
    earlier call for the same format, which lets a decoder write only the bytes that can differ.
    `encode_sections(matrix)` gives the sections of a float32 matrix [rows, cols]; a format without it comes
    out of files alone. A panel of rows starts and ends at a multiple of `row_granularity` rows (or at the
    end of the matrix). `bits_per_weight` leaves out what only very small matrices notice (padding between
    sections, incomplete blocks). `group` columns of a row share a scale, 1 where there are none.

    A format whose matrices share a codebook, which is no part of them, has `bind`: it makes the format of
    those that share this one. That has the `codebook`; nothing but its own products looks at it.
    """

    name: str
    bits_per_weight: float
    row_granularity: int
    sections: Callable[[int, int], tuple[int, ...]]
    decode_into: Callable[[Sequence[Bytes], int, RowIndex, Floats], None]
    encode_sections: Callable[[Floats], Sequence[NDArray[np.generic]]] | None = None
    group: int = 1
    bind: Callable[[Floats], WeightFormat] | None = None
    codebook: Floats | None = None

    def bound_to(self, codebook: Floats) -> WeightFormat:
        """See `bind`. Raises ValueError for a format without codebooks, or if this is none of its."""
        if self.bind is None:
            raise ValueError(f"{self.name} has no codebook")
        return self.bind(codebook)

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

    def encode(self, matrix: Floats) -> Bytes:
        """float32 [rows, cols] -> uint8 [nbytes]. Raises ValueError where nothing encodes."""
        rows, cols = matrix.shape
        return self.join(rows, cols, self.to_sections(np.ascontiguousarray(matrix, np.float32)))

    def to_sections(self, matrix: Floats) -> Sequence[NDArray[np.generic]]:
        """See `encode_sections`, which may be missing. Raises ValueError if it is."""
        if self.encode_sections is None:
            raise ValueError(f"{self.name} is kept as files have it; no matrix is packed in it")
        return self.encode_sections(matrix)

    def decode(self, data: Bytes, rows: int, cols: int) -> Floats:
        """uint8 [nbytes] -> float32 [rows, cols]."""
        out = np.zeros((rows, cols), np.float32)
        self.decode_into(self.split(data, rows, cols), cols, slice(0, rows), out)
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
