"""A GGUF file of the llama family as a checkpoint.

Names, config and tokenizer are put in Hugging Face's form. Query and key rows that the converter had permuted
are put back in their order. Float tensors are kept, and so are matrices of the types in `gguf_packed`; other
quantised ones are decoded to bf16 by the `gguf` package.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from uringinfer.errors import IntegrityError, UnsupportedModelError
from uringinfer.packing.gguf_config import PERMUTED, ROTARY_FACTORS, Metadata, checkpoint_name, make_config
from uringinfer.packing.gguf_header import GgufHeader, GgufTensor, read_gguf_header
from uringinfer.packing.gguf_packed import PACKED, PackedType
from uringinfer.packing.gguf_tokenizer import tokenizer_files
from uringinfer.packing.source import Bytes, SourceTensor
from uringinfer.packing.windows import read_range
from uringinfer.storage.direct import open_file

_KEPT = {
    GGMLQuantizationType.F32: "F32",
    GGMLQuantizationType.F16: "F16",
    GGMLQuantizationType.BF16: "BF16",
}
# fmt: off
DECODED = frozenset((
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0",
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4",
))
# fmt: on
"""Quantised types that the `gguf` package decodes."""
_DECODED_BYTES = 1 << 19
"""Bytes of bf16 decoded at once: bounds the temporaries to a few MB in each thread."""


class GgufSource:
    """A GGUF file as a `source.TensorSource`. Make one with `GgufSource.open`."""

    def __init__(self, header: GgufHeader) -> None:
        self.path = header.path
        self._metadata = Metadata(header.path, header.metadata)
        self._file = open_file(header.path)
        self._places = {
            checkpoint_name(name): tensor for name, tensor in header.tensors.items() if name != ROTARY_FACTORS
        }
        self.tensors: dict[str, SourceTensor] = {
            name: _source_tensor(name, place) for name, place in self._places.items()
        }
        shapes = {name: tensor.shape for name, tensor in self._places.items()}
        self.config: dict[str, Any] = make_config(
            self._metadata, shapes, self._rotary_factors(header.tensors.get(ROTARY_FACTORS))
        )
        self._auxiliary, self.notes = tokenizer_files(self._metadata)
        self.identity: dict[str, Any] = {
            "kind": "gguf",
            "name": header.path.name,
            "files": {header.path.name: header.nbytes},
            "headers_crc32": zlib.crc32(header.data),
        }

    @classmethod
    def open(cls, path: Path) -> GgufSource:
        """Opens and checks the file `path`.

        Raises IntegrityError naming what is short or contradicts itself, UnsupportedModelError for an
        architecture or a type of tensor that is not known.
        """
        header = read_gguf_header(path)
        if header.metadata.get("split.count", 0) not in (0, 1):
            raise UnsupportedModelError(
                f"{path}: one of {header.metadata['split.count']} parts of a model",
                hint="join them with llama-gguf-split --merge",
            )
        for tensor in header.tensors.values():
            _check_decodable(path, tensor)
        return cls(header)

    def state(self) -> str:
        """See `TensorSource.state`."""
        status = self.path.stat()
        return repr((status.st_size, status.st_mtime_ns, status.st_ino))

    def auxiliary_files(self) -> Mapping[str, bytes]:
        config = (json.dumps(self.config, indent=1) + "\n").encode()
        return {"config.json": config, **self._auxiliary}

    def read_rows(self, name: str, start: int, stop: int, out: Bytes) -> None:
        place = self._places[name]
        row_bytes = self.tensors[name].row_bytes
        step = max(1, _DECODED_BYTES // row_bytes)
        for first in range(start, stop, step):
            last = min(stop, first + step)
            rows = self._stored(name, first, last)
            target = out[(first - start) * row_bytes : (last - start) * row_bytes]
            packed = _packed_type(place)
            if place.type in _KEPT:
                target[:] = rows.reshape(-1)
            elif packed is None:
                target[:] = decode_to_bf16(rows, place.type)
            else:
                packed.unpack_blocks(rows, target.reshape(last - first, row_bytes))

    def _stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """Rows [start, stop) in the model's order, as the file has them -> uint8 [rows, bytes of a row]."""
        head = self._permuted_head(name)
        if head is None:
            return self._read(name, start, stop)
        low, high = start // head * head, -(-stop // head) * head
        return self._read(name, low, high)[stored_rows(np.arange(start, stop), head) - low]

    def _read(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        place = self._places[name]
        row_bytes = place.nbytes // self.tensors[name].rows
        rows = np.empty((stop - start, row_bytes), np.uint8)
        read_range(self._file, place.offset + start * row_bytes, rows.reshape(-1))
        return rows

    def _permuted_head(self, name: str) -> int | None:
        """Rows of one head, if the rows of this tensor are stored permuted within each head."""
        if self._metadata.architecture not in PERMUTED:
            return None
        for projection, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if name.rpartition(".")[0].endswith(projection):
                return int(self.tensors[name].shape[0] // self.config[heads])
        return None

    def _rotary_factors(self, tensor: GgufTensor | None) -> NDArray[np.float32] | None:
        if tensor is None or tensor.type != GGMLQuantizationType.F32:
            return None
        data = np.empty(tensor.nbytes, np.uint8)
        read_range(self._file, tensor.offset, data)
        return data.view(np.float32)

    def close(self) -> None:
        self._file.close()


def stored_rows(rows: NDArray[np.int64], head: int) -> NDArray[np.int64]:
    """Where GGUF of the llama family stores the given rows of a query or key matrix.

    A head of `head` rows is two halves in the model, rotated in pairs (i, i + head / 2); the converter lays
    such pairs side by side.
    """
    first, within = rows // head * head, rows % head
    half = head // 2
    return first + within % half * 2 + within // half


def decode_to_bf16(rows: NDArray[np.uint8], kind: GGMLQuantizationType) -> Bytes:
    """Packed rows -> their values in bf16, rounded to nearest even, as bytes."""
    bits = dequantize(rows, kind).reshape(-1).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return rounded.astype(np.uint16).view(np.uint8)


def _check_decodable(path: Path, tensor: GgufTensor) -> None:
    """Raises UnsupportedModelError unless tensors of this type and shape can be kept or decoded."""
    if tensor.type in _KEPT:
        return
    if tensor.type.name not in DECODED:
        raise UnsupportedModelError(
            f"{path}: tensor {tensor.name!a} of type {tensor.type.name}, which cannot be decoded",
            hint="use a file of another type, or the safetensors checkpoint",
        )
    if len(tensor.shape) < 2:
        raise IntegrityError(f"{path}: the vector {tensor.name!a} is of type {tensor.type.name}")


def _packed_type(place: GgufTensor) -> PackedType | None:
    """How the container keeps the tensor packed; None if it does not."""
    return PACKED.get(place.type.name) if len(place.shape) == 2 else None


def _source_tensor(name: str, place: GgufTensor) -> SourceTensor:
    """What a tensor of the file is to the packer."""
    if place.type in _KEPT:
        return SourceTensor(name, _KEPT[place.type], place.shape)
    packed = _packed_type(place)
    if packed is None:
        return SourceTensor(name, "BF16", place.shape, decoded_from=place.type.name)
    return SourceTensor(name, "U8", place.shape, packed_as=packed.format)
