"""How quantised checkpoints store what the container has row by row, [out, in]: each class gives the rows
of one section of a packed matrix, from tensors that may be stored the other way round, packed along another
axis, or once for all rows.

A part that is stored the other way round (`is_whole`) reads all of it for any range of rows, so it is asked
for many rows at a time; the stored rows pass through a buffer of READ_BYTES.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import UnsupportedModelError
from uringinfer.packing.runs import widen
from uringinfer.packing.source import Bytes, TensorSource

READ_BYTES = 1 << 20

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column, of eight, that the i-th nibble of a word belongs to."""
PLAIN_ORDER = tuple(range(8))

Words = NDArray[np.uint32]


class StoredPart(Protocol):
    """One section of a packed matrix."""

    @property
    def is_whole(self) -> bool: ...

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        """Rows [start, stop) into `out`, uint8 [their bytes]."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a tensor as they are, from `first` on."""

    tensor: str
    first: int = 0
    is_whole = False

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        source.read_rows(self.tensor, self.first + start, self.first + stop, out)


@dataclass(frozen=True, slots=True)
class RepeatedRows:
    """One number a row, `times` times in a row."""

    tensor: str
    times: int
    is_whole = False

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        itemsize = source.tensors[self.tensor].row_bytes
        numbers = np.empty((stop - start, 1, itemsize), np.uint8)
        source.read_rows(self.tensor, start, stop, numbers.reshape(-1))
        out.reshape(stop - start, self.times, itemsize)[:] = numbers


@dataclass(frozen=True, slots=True)
class WidenedRows:
    """The numbers of a tensor's rows as float32."""

    tensor: str
    is_whole = False

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        tensor = source.tensors[self.tensor]
        raw = np.empty((stop - start) * tensor.row_bytes, np.uint8)
        source.read_rows(self.tensor, start, stop, raw)
        out.view(np.float32)[:] = widen(raw, tensor.dtype)


@dataclass(frozen=True, slots=True)
class OneForAll:
    """A single number, for every row, as float32."""

    tensor: str
    is_whole = False

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        tensor = source.tensors[self.tensor]
        raw = np.empty(tensor.nbytes, np.uint8)
        source.read_rows(self.tensor, 0, tensor.rows, raw)
        out.view(np.float32)[:] = widen(raw, tensor.dtype)


@dataclass(frozen=True, slots=True)
class TransposedNumbers:
    """Numbers of two bytes stored [groups, out] -> [out, groups]; `times` of each."""

    tensor: str
    times: int = 1
    is_whole = True

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        rows = out.view(np.uint16).reshape(stop - start, -1)
        for first, numbers in _pieces(source, self.tensor, np.dtype(np.uint16)):
            for repeat in range(self.times):
                step = slice(first * self.times + repeat, (first + len(numbers)) * self.times, self.times)
                rows[:, step] = numbers[:, start:stop].T


@dataclass(frozen=True, slots=True)
class NibblesAlongRows:
    """Words of eight nibbles stored [n, out / 8] -> nibbles [out, ceil(n / 2)], the first n in the low half.

    Nibble i of a word belongs to row 8 w + order[i]. `added` goes to every nibble; UnsupportedModelError if
    one does not fit then. Each of the n is there `times` times.
    """

    tensor: str
    order: tuple[int, ...] = PLAIN_ORDER
    added: int = 0
    times: int = 1
    is_whole = True

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        rows = out.reshape(stop - start, -1)
        rows[:] = 0
        low, high = start // 8, -(-stop // 8)
        shifts = np.empty(8, np.uint32)
        shifts[list(self.order)] = 4 * np.arange(8, dtype=np.uint32)
        for first, words in _pieces(source, self.tensor, np.dtype(np.uint32)):
            spread = (words[:, low:high, None] >> shifts & np.uint32(15)).astype(np.uint8)
            nibbles = spread.reshape(len(words), -1)[:, start - 8 * low : stop - 8 * low]
            nibbles = self._shifted(nibbles).repeat(self.times, axis=0)
            _put_nibbles(nibbles, first * self.times, rows)

    def _shifted(self, nibbles: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if self.added and (nibbles > 15 - self.added).any():
            raise UnsupportedModelError(
                f"tensor {self.tensor} holds a zero point of 16, which no four bits keep",
                hint="convert the checkpoint to gptq_v2, or use another one",
            )
        return nibbles + np.uint8(self.added)


@dataclass(frozen=True, slots=True)
class NibblesOfRows:
    """Words of eight nibbles, each of another row, stored [ceil(out / 8), n] -> nibbles [out, ceil(n / 2)],
    `times` of each."""

    tensor: str
    times: int = 1
    is_whole = False

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        low, high = start // 8, -(-stop // 8)
        raw = np.empty((high - low) * source.tensors[self.tensor].row_bytes, np.uint8)
        source.read_rows(self.tensor, low, high, raw)
        words = raw.view(np.uint32).reshape(high - low, 1, -1)
        shifts = 4 * np.arange(8, dtype=np.uint32)[None, :, None]
        nibbles = (words >> shifts & np.uint32(15)).astype(np.uint8).reshape(8 * (high - low), -1)
        rows = out.reshape(stop - start, -1)
        rows[:] = 0
        _put_nibbles(nibbles[start - 8 * low : stop - 8 * low].T.repeat(self.times, axis=0), 0, rows)


@dataclass(frozen=True, slots=True)
class NibblesAlongColumns:
    """Words of eight nibbles stored [in / 8, out] -> nibbles [out, in / 2]. `order`, if there is one, names
    a tensor: packed column i is column order[i] of the stored ones, as `ColumnOrder` has it. `unordered`
    names one that must leave them where they are."""

    tensor: str
    order: ColumnOrder | None = None
    unordered: ColumnOrder | None = None
    is_whole = True

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        if self.unordered is not None:
            self.unordered.check_in_order(source)
        stored = source.tensors[self.tensor].shape[0]
        order = None if self.order is None else self.order.inverse(source)
        rows = out.reshape(stop - start, -1)
        rows[:] = 0
        for first, words in _pieces(source, self.tensor, np.dtype(np.uint32)):
            mine = np.ascontiguousarray(words[:, start:stop].T)
            if order is None:
                rows.view(np.uint32).reshape(stop - start, stored)[:, first : first + len(words)] = mine
                continue
            octets = mine.view(np.uint8)
            for column in range(8 * len(words)):
                to = order[8 * first + column]
                nibble = octets[:, column // 2] >> np.uint8(4 * (column % 2)) & np.uint8(15)
                rows[:, to // 2] |= nibble << np.uint8(4 * (to % 2))


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """The columns of a matrix, those of each group together: int32 [1, cols] out of the group of each column.

    UnsupportedModelError unless each of the groups has as many columns as the others."""

    tensor: str
    groups: int
    is_whole = False

    def read(self, source: TensorSource, start: int, stop: int, out: Bytes) -> None:
        out.view(np.int32)[:] = self.columns(source)

    def columns(self, source: TensorSource) -> NDArray[np.int64]:
        tensor = source.tensors[self.tensor]
        raw = np.empty(tensor.nbytes, np.uint8)
        source.read_rows(self.tensor, 0, tensor.rows, raw)
        group_of = raw.view(np.int32)
        columns = np.argsort(group_of, kind="stable")
        expected = np.arange(len(group_of)) // (len(group_of) // self.groups)
        if not np.array_equal(group_of[columns], expected):
            raise UnsupportedModelError(
                f"tensor {self.tensor}: its {self.groups} groups differ in size, no format keeps that"
            )
        return columns

    def check_in_order(self, source: TensorSource) -> None:
        """Raises UnsupportedModelError unless the groups follow one another."""
        columns = self.columns(source)
        if not np.array_equal(columns, np.arange(len(columns))):
            raise UnsupportedModelError(
                f"tensor {self.tensor} puts columns in another order, but the config says desc_act false",
                hint="set desc_act in quantization_config",
            )

    def inverse(self, source: TensorSource) -> NDArray[np.int64]:
        """Where each stored column goes."""
        return np.argsort(self.columns(source), kind="stable")


def _pieces(
    source: TensorSource, name: str, dtype: np.dtype[np.uint16] | np.dtype[np.uint32]
) -> Iterator[tuple[int, NDArray[np.uint16] | NDArray[np.uint32]]]:
    """(number of the first, stored rows) of a matrix, in pieces of READ_BYTES."""
    tensor = source.tensors[name]
    few = max(1, READ_BYTES // tensor.row_bytes)
    for first in range(0, tensor.rows, few):
        count = min(few, tensor.rows - first)
        raw = np.empty(count * tensor.row_bytes, np.uint8)
        source.read_rows(name, first, first + count, raw)
        yield first, raw.view(dtype).reshape(count, -1)


def _put_nibbles(nibbles: NDArray[np.uint8], first: int, rows: Bytes) -> None:
    """nibbles [n, out] -> columns first.. of rows [out, bytes], which hold zeros there."""
    for odd in (0, 1):
        mine = nibbles[(odd - first) % 2 :: 2]
        start = (first + (odd - first) % 2) // 2
        rows[:, start : start + len(mine)] |= (mine << np.uint8(4 * odd)).T
