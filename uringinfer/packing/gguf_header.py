"""The header of a GGUF file: its metadata and which bytes hold which tensor.

Sizes and numbers of the quantised types are the `gguf` package's. The header is read here rather than by its
`GGUFReader`, which makes an array object of every token of the vocabulary (200 MB and seconds for 49,152
tokens) and says of a file that is cut off only that an array cannot be reshaped. Layout:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from uringinfer.errors import IntegrityError, UnsupportedModelError
from uringinfer.packing.gguf_stub import MARK_BYTES, Before, read_mark
from uringinfer.packing.gguf_types import known_type
from uringinfer.storage.regular import open_regular
from uringinfer.units import counted

_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of the file; `shape` in the usual order (GGUF stores it reversed), `offset` in the file."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """`metadata` holds numbers, strings, booleans and lists of these by their GGUF names. `data` is the
    header's own bytes. `before` is what the file was, if it was cut down to its header; `nbytes` is the size
    that it had."""

    path: Path
    nbytes: int
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]
    data: bytes
    before: Before | None = None


def read_gguf_header(path: Path) -> GgufHeader:
    """Reads and checks the header of one GGUF file.

    Raises IntegrityError of one line naming file and fault: a short file by how many bytes, overlapping
    tensors, counts and strings that run past the end; UnsupportedModelError for another version.
    """
    with open_regular(path) as file:
        nbytes = os.fstat(file.fileno()).st_size
        if not nbytes:
            raise IntegrityError(f"{path}: is empty", hint="download it again")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            cursor = _Cursor(path, view)
            tensor_count, entry_count = _read_counts(cursor)
            metadata = _read_metadata(cursor, entry_count)
            infos = [_read_tensor_info(cursor) for _ in range(tensor_count)]
            data = view[: cursor.position]
            before = read_mark(view[cursor.position : cursor.position + MARK_BYTES])
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        raise IntegrityError(f"{path}: general.alignment is {alignment!a}, no power of two")
    start = -(-len(data) // alignment) * alignment
    tensors = [
        GgufTensor(name, kind, shape, start + offset, size) for name, kind, shape, offset, size in infos
    ]
    nbytes = before.nbytes if before is not None else nbytes
    _check_ranges(path, nbytes, tensors)
    return GgufHeader(path, nbytes, metadata, {tensor.name: tensor for tensor in tensors}, data, before)


class _Cursor:
    """Reads on through the header; nothing is read past the end of the file."""

    def __init__(self, path: Path, view: mmap.mmap) -> None:
        self.path = path
        self.position = 0
        self._view = view

    def fail(self, problem: str) -> IntegrityError:
        return IntegrityError(
            f"{self.path}: header at offset {self.position}: {problem}",
            hint="resume the download; if it is complete, download it again",
        )

    def take(self, nbytes: int) -> bytes:
        end = self.position + nbytes
        if end > len(self._view):
            raise IntegrityError(
                f"{self.path}: {counted(end - len(self._view), 'byte')} short:"
                f" its header runs to {end} or further",
                hint="resume the download from where it stopped",
            )
        data = self._view[self.position : end]
        self.position = end
        return data

    def number(self, code: str) -> Any:
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(code)))
        return value

    def count(self, smallest: int) -> int:
        """A number of things that take at least `smallest` bytes each; they must fit in the file."""
        value: int = self.number("Q")
        if value * smallest > len(self._view):
            raise self.fail(f"a count of {value}, more than the file's {len(self._view)} bytes can hold")
        return value

    def string(self) -> str:
        try:
            return self.take(self.count(1)).decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail("a name or text is not UTF-8") from None

    def value(self, kind: int, *, nested: bool = False) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY and not nested:
            return self._array()
        if kind not in _SCALARS:
            raise self.fail(f"unknown type of value {kind}")
        return self.number(_SCALARS[kind])

    def _array(self) -> list[Any]:
        kind = self.number("I")
        if kind in _SCALARS:
            code = _SCALARS[kind]
            count = self.count(struct.calcsize(code))
            return list(struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(code))))
        return [self.value(kind, nested=True) for _ in range(self.count(8))]


def _read_counts(cursor: _Cursor) -> tuple[int, int]:
    if cursor.take(4) != b"GGUF":
        raise IntegrityError(f"{cursor.path}: is no GGUF file")
    version = cursor.number("I")
    if version not in _VERSIONS:
        raise UnsupportedModelError(
            f"{cursor.path}: GGUF version {version}, supported are {' and '.join(map(str, _VERSIONS))}",
            hint="convert the model again with a current llama.cpp",
        )
    return cursor.count(24), cursor.count(13)


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.string()
        if key in metadata:
            raise cursor.fail(f"{key!a} stands twice")
        metadata[key] = cursor.value(cursor.number("I"))
    return metadata


def _read_tensor_info(cursor: _Cursor) -> tuple[str, GGMLQuantizationType, tuple[int, ...], int, int]:
    """(name, type, shape, offset from the start of the data, bytes) of the next tensor."""
    name = cursor.string()
    dimensions = cursor.number("I")
    if dimensions > _MAX_DIMENSIONS:
        raise cursor.fail(f"tensor {name!a} has {dimensions} dimensions")
    reversed_shape = [cursor.number("Q") for _ in range(dimensions)]
    number, offset = cursor.number("I"), cursor.number("Q")
    kind = known_type(cursor.path, name, number)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    cols = reversed_shape[0] if reversed_shape else 1
    if cols % block or 0 in reversed_shape:
        raise cursor.fail(f"tensor {name!a} of type {kind.name} cannot have the shape {reversed_shape[::-1]}")
    nbytes = math.prod(reversed_shape) // block * block_bytes
    return name, kind, tuple(reversed_shape[::-1]), offset, nbytes


def _check_ranges(path: Path, file_bytes: int, tensors: list[GgufTensor]) -> None:
    """Tensors have different names, do not overlap, and lie inside the file."""
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise IntegrityError(f"{path}: two tensors have the same name")
    end, before = 0, "the header"
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise IntegrityError(f"{path}: tensor {tensor.name!a} at {tensor.offset} overlaps {before}")
        end, before = tensor.offset + tensor.nbytes, repr(tensor.name)
    if end > file_bytes:
        raise IntegrityError(
            f"{path}: {counted(end - file_bytes, 'byte')} short: it holds {file_bytes} of {end}",
            hint="resume the download from where it stopped (hf download, or curl -C - -O URL)",
        )
