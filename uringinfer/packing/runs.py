"""How bytes of a container come from rows of a source: copied, picked at a stride, widened or transposed.

A run is a stretch of a segment or a record. It is read in units (rows of the container, mostly), any range of
them at a time, so that a run of any size passes through a small buffer. Nothing here computes with weights
(`conversion` does): a bf16 scale that becomes float32 keeps its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.packing.source import Bytes, TensorSource

WIDENED = ("F32", "BF16", "F16", "F8_E8M0")
"""The dtypes that `widen` takes to float32 without loss."""


class Run(Protocol):
    """`nbytes` of a block from `offset` on, in `units` parts of `unit_bytes`; the last may be shorter."""

    @property
    def offset(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def units(self) -> int: ...

    @property
    def unit_bytes(self) -> int: ...

    @property
    def is_splittable(self) -> bool:
        """Whether units should be read a few at a time; reading all at once may be much cheaper."""
        ...

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        """Units [start, stop) into `out` (uint8 [their bytes])."""
        ...


@dataclass(frozen=True, slots=True)
class RowsRun:
    """`units` groups of `group_rows` source rows each: groups `first`, `first + step`, ...

    `is_widened` turns their elements into float32.
    """

    tensor: str
    first: int
    units: int
    step: int
    group_rows: int
    offset: int
    nbytes: int
    is_widened: bool = False
    is_splittable: bool = True

    @property
    def unit_bytes(self) -> int:
        return self.nbytes // self.units

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        first = self.first + start * self.step
        groups = (stop - start - 1) * self.step + 1
        if self.step == 1 and not self.is_widened:
            source.read_rows(self.tensor, first * self.group_rows, (first + groups) * self.group_rows, out)
            return
        tensor = source.tensors[self.tensor]
        raw = np.empty((groups, self.group_rows * tensor.row_bytes), np.uint8)
        source.read_rows(
            self.tensor, first * self.group_rows, (first + groups) * self.group_rows, raw.reshape(-1)
        )
        picked = np.ascontiguousarray(raw[:: self.step]).reshape(-1)
        out[:] = widen(picked, tensor.dtype).view(np.uint8) if self.is_widened else picked


@dataclass(frozen=True, slots=True)
class ElementsRun:
    """A vector: of source rows [row, row + rows), elements `first`, `first + step`, ... in float32."""

    tensor: str
    row: int
    rows: int
    first: int
    units: int
    step: int
    offset: int
    is_splittable: bool = False

    @property
    def unit_bytes(self) -> int:
        return 4

    @property
    def nbytes(self) -> int:
        return 4 * self.units

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        tensor = source.tensors[self.tensor]
        raw = np.empty(self.rows * tensor.row_bytes, np.uint8)
        source.read_rows(self.tensor, self.row, self.row + self.rows, raw)
        elements = widen(raw, tensor.dtype)[self.first :: self.step]
        out[:] = np.ascontiguousarray(elements[start:stop]).view(np.uint8)


@dataclass(frozen=True, slots=True)
class TransposedRun:
    """Rows [out, in] of a matrix that the source stores as [in, out], at source rows [row, row + rows).

    Unit i is column `first + i * step`. Any range of units reads all of the stored matrix, so it is read once
    for all, and its rows pass through a buffer of READ_BYTES.
    """

    tensor: str
    row: int
    rows: int
    first: int
    units: int
    step: int
    offset: int
    nbytes: int
    is_splittable: bool = False

    READ_BYTES = 1 << 20

    @property
    def unit_bytes(self) -> int:
        return self.nbytes // self.units

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        tensor = source.tensors[self.tensor]
        itemsize = self.unit_bytes // self.rows
        result = out.reshape(stop - start, self.rows, itemsize)
        first = self.first + start * self.step
        last = self.first + (stop - 1) * self.step
        few = max(1, self.READ_BYTES // tensor.row_bytes)
        for row in range(0, self.rows, few):
            count = min(few, self.rows - row)
            raw = np.empty(count * tensor.row_bytes, np.uint8)
            source.read_rows(self.tensor, self.row + row, self.row + row + count, raw)
            columns = raw.reshape(count, -1, itemsize)[:, first : last + 1 : self.step]
            result[:, row : row + count] = columns.transpose(1, 0, 2)


@dataclass(frozen=True, slots=True)
class HeldRun:
    """Bytes that an earlier run of the same block makes while it is read."""

    held: Bytes
    offset: int
    unit_bytes: int = 1
    is_splittable: bool = True

    @property
    def nbytes(self) -> int:
        return len(self.held)

    @property
    def units(self) -> int:
        return len(self.held)

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        out[:] = self.held[start:stop]


def widen(data: Bytes, dtype: str) -> NDArray[np.float32]:
    """Elements of `dtype` (one of WIDENED) as float32, values unchanged; E8M0 is a power of two."""
    if dtype == "F32":
        return data.view(np.float32)
    if dtype == "BF16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype == "F16":
        return data.view(np.float16).astype(np.float32)
    powers = np.ldexp(np.float32(1), data.astype(np.int32) - 127)
    return np.where(data == 0xFF, np.float32(np.nan), powers).astype(np.float32)
