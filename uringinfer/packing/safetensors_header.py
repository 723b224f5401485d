"""The header of a safetensors file: which bytes hold which tensor.

The header is hostile input, and a partial download is the most frequent fault: every byte after the header
must belong to exactly one tensor, and the file must end where the last one does. Only the header is read.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from uringinfer.container.fields import MAX_INTEGER, Fields, parse_object
from uringinfer.errors import IntegrityError
from uringinfer.packing.downloads import HEAD_BYTES, foreign_content, unfinished_beside
from uringinfer.packing.source import DTYPE_BITS, SourceTensor
from uringinfer.storage.regular import open_regular
from uringinfer.units import counted

MAX_HEADER_BYTES = 100_000_000
"""The limit that the safetensors library itself keeps."""

_LENGTH_BYTES = 8
_MAX_AXES = 8


@dataclass(frozen=True, slots=True)
class ShardTensor:
    """A tensor and where its bytes start in its file."""

    tensor: SourceTensor
    offset: int


@dataclass(frozen=True, slots=True)
class ShardHeader:
    """What a shard says it holds. `crc32` is that of the header's bytes."""

    path: Path
    nbytes: int
    crc32: int
    tensors: dict[str, ShardTensor]


def read_header(path: Path) -> ShardHeader:
    """Reads and checks the header of one safetensors file.

    Raises IntegrityError of one line naming the file and what is wrong: a short file by how many bytes, an
    overlap, a gap, trailing bytes, an unknown dtype, a header that is none, a pipe in the file's place.
    """
    with open_regular(path) as file:
        file_bytes = os.fstat(file.fileno()).st_size
        prefix = file.read(_LENGTH_BYTES)
        if (foreign := foreign_content(path, prefix + file.peek(HEAD_BYTES)[:HEAD_BYTES])) is not None:
            raise foreign
        if len(prefix) < _LENGTH_BYTES:
            raise _short(path, file_bytes, _LENGTH_BYTES, "at least")
        (length,) = struct.unpack("<Q", prefix)
        if length == 0:
            raise IntegrityError(
                f"{path}: begins with zeros: its download did not finish",
                hint="resume the download from where it stopped (hf download, or curl -C - -O URL)",
            )
        if length > MAX_HEADER_BYTES:
            raise IntegrityError(
                f"{path}: says its header has {length} bytes, more than {MAX_HEADER_BYTES}",
                hint="it is no safetensors file, or damaged",
            )
        if _LENGTH_BYTES + length > file_bytes:
            raise _short(path, file_bytes, _LENGTH_BYTES + length, "at least")
        text = file.read(length)
    start = _LENGTH_BYTES + length
    ranges = _ranges(path, text)
    _check_coverage(path, ranges, file_bytes - start)
    return ShardHeader(
        path=path,
        nbytes=file_bytes,
        crc32=zlib.crc32(text),
        tensors={tensor.name: ShardTensor(tensor, start + begin) for tensor, begin, _ in ranges},
    )


def _short(path: Path, actual: int, needed: int, qualifier: str = "") -> IntegrityError:
    words = " ".join(filter(None, [qualifier, str(needed)]))
    begun = unfinished_beside(path)
    return IntegrityError(
        f"{path}: {counted(needed - actual, 'byte')} short: it holds {actual} of {words}"
        + (f"; its download did not finish ({begun})" if begun else ""),
        hint="resume the download from where it stopped (hf download, or curl -C - -O URL)",
    )


def _ranges(path: Path, text: bytes) -> list[tuple[SourceTensor, int, int]]:
    """(tensor, begin, end) of every tensor, by begin; offsets count from the end of the header."""
    entries = parse_object(text, f"{path}: header")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise IntegrityError(f"{path}: header: __metadata__ is not an object")
    ranges = []
    for name, value in entries.items():
        quick = _entry(name, value)
        ranges.append(quick if quick is not None else _checked_entry(path, name, value))
    return sorted(ranges, key=lambda entry: entry[1:])


def _entry(name: str, value: object) -> tuple[SourceTensor, int, int] | None:
    """(tensor, begin, end) if everything about an entry is right, in little time: a checkpoint may have half
    a million of them."""
    if type(value) is not dict or len(value) != 3:
        return None
    dtype, shape, place = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if type(dtype) is not str or type(shape) is not list or type(place) is not list:
        return None
    bits = DTYPE_BITS.get(dtype)
    if bits is None or len(shape) > _MAX_AXES or len(place) != 2:
        return None
    begin, end = place
    for number in (*shape, begin, end):
        if type(number) is not int or not 0 <= number <= MAX_INTEGER:
            return None
    if end - begin != -(-math.prod(shape) * bits // 8) or end < begin:
        return None
    return SourceTensor(name, dtype, tuple(shape)), begin, end


def _checked_entry(path: Path, name: str, value: object) -> tuple[SourceTensor, int, int]:
    """The same, saying what is wrong."""
    fields = Fields(value, f"{path}: tensor {name!a}")
    dtype = fields.text("dtype")
    if dtype not in DTYPE_BITS:
        fields.fail("dtype", f"unknown dtype {dtype!a}")
    tensor = SourceTensor(name, dtype, fields.shape("shape", smallest=0))
    begin, end = fields.integers("data_offsets", 2, 0, MAX_INTEGER)
    fields.close()
    if end - begin != tensor.nbytes:
        fields.fail("data_offsets", f"{end - begin} bytes where {dtype} {tensor.shape} takes {tensor.nbytes}")
    return tensor, begin, end


def _check_coverage(path: Path, ranges: list[tuple[SourceTensor, int, int]], data_bytes: int) -> None:
    """The ranges follow one another without gap or overlap, and together they are the file's data."""
    covered, before = 0, "the header"
    for tensor, begin, end in ranges:
        if begin != covered:
            fault = "overlaps" if begin < covered else f"leaves a gap of {begin - covered} bytes after"
            raise IntegrityError(
                f"{path}: tensor {tensor.name!a} at {begin} {fault} {before}, which ends at {covered}"
            )
        covered, before = end, f"{tensor.name!a}"
    if covered > data_bytes:
        header_bytes = path.stat().st_size - data_bytes
        raise _short(path, header_bytes + data_bytes, header_bytes + covered)
    if covered < data_bytes:
        raise IntegrityError(
            f"{path}: {data_bytes - covered} bytes after the last tensor belong to none",
            hint="download the file again",
        )
