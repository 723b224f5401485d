"""A GGUF file, or all parts of one, as a checkpoint.

Names, config and tokenizer are put in Hugging Face's form. Query and key rows that the converter had permuted
are put back in their order. Float tensors are kept, and quantised matrices stay as they are, byte for byte;
stacks of experts are read one expert at a time.

Two kinds of vectors are computed, since the file has what a converter made of them: the logarithms of a delta
attention's rates, and the scales of norms that were multiplied into the vector behind them, which are ones.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from uringinfer.errors import IntegrityError
from uringinfer.kernels.ggml_formats import FORMAT_OF_TYPE
from uringinfer.packing.gguf_config import make_config, model_layers
from uringinfer.packing.gguf_files import part_paths
from uringinfer.packing.gguf_header import GgufHeader, GgufTensor
from uringinfer.packing.gguf_metadata import Metadata
from uringinfer.packing.gguf_names import NAMES, ROTARY_FACTORS
from uringinfer.packing.gguf_parts import read_parts
from uringinfer.packing.gguf_stub import Before, cut_down
from uringinfer.packing.gguf_tokenizer import tokenizer_files
from uringinfer.packing.gguf_types import FLOATS
from uringinfer.packing.source import Bytes, SourceTensor
from uringinfer.packing.windows import read_range
from uringinfer.storage.direct import open_file
from uringinfer.units import counted

_RATES, _SCORES = ".A_log", "_res_proj.weight"
_FLAT = (".k_b_proj.weight", ".v_b_proj.weight")
_LAYER = re.compile(r"blk\.(\d+)\.")
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor lies: in which part, and how many rows each of its heads has if they are permuted."""

    part: int
    tensor: GgufTensor
    head: int | None


class GgufSource:
    """A model in GGUF as a `source.TensorSource`. Make one with `GgufSource.open`."""

    def __init__(self, headers: Sequence[GgufHeader]) -> None:
        first = headers[0]
        self.path = first.path
        self._paths = [header.path for header in headers]
        self._header_bytes = [len(header.data) for header in headers]
        self._before = {number: h.before for number, h in enumerate(headers) if h.before is not None}
        self.part_bytes = [header.nbytes for header in headers]
        metadata = Metadata(first.path, first.metadata)
        names = NAMES[metadata.architecture]
        self._files = [open_file(path) for path in self._paths]
        stored = {name: tensor for header in headers for name, tensor in header.tensors.items()}
        owners = {name: part for part, header in enumerate(headers) for name in header.tensors}
        drafts = _drafts(stored, model_layers(metadata))
        factors = stored.get(ROTARY_FACTORS)
        self.tensors: dict[str, SourceTensor] = {}
        self._places: dict[str, _Place] = {}
        self._computed: dict[str, Callable[[], Floats]] = {}
        for name, tensor in stored.items():
            if name not in drafts and tensor is not factors:
                self._add(metadata, names.checkpoint_name(name), _Place(owners[name], tensor, None))
        shapes = {name: tensor.shape for name, tensor in self.tensors.items()}
        self.config: dict[str, Any] = make_config(
            metadata, shapes, None if factors is None else self._vector(owners[factors.name], factors)
        )
        self._auxiliary, notes = tokenizer_files(metadata)
        self.notes = [*notes, *_draft_notes(drafts, stored)]
        self.identity: dict[str, Any] = {
            "kind": "gguf",
            "name": first.path.name,
            "files": {header.path.name: header.nbytes for header in headers},
            "headers_crc32": zlib.crc32(b"".join(header.data for header in headers)),
        }

    @classmethod
    def open(cls, path: Path) -> GgufSource:
        """Opens and checks the model at `path`: its file, any of its parts, or the directory they are in.

        Raises IntegrityError naming what is short, missing or contradicts itself, UnsupportedModelError for
        an architecture, a setting or a type of tensor that is not known.
        """
        return cls(read_parts(part_paths(path)))

    def _add(self, metadata: Metadata, name: str, place: _Place) -> None:
        """Makes the tensor of `place` known as `name`, with what is computed beside or instead of it."""
        tensor = place.tensor
        if not tensor.shape:
            raise IntegrityError(f"{self._paths[place.part]}: tensor {tensor.name!a} has no dimensions")
        shape = _shape(name, tensor.shape)
        if tensor.type.name in FLOATS:
            self.tensors[name] = SourceTensor(name, FLOATS[tensor.type.name], shape)
        elif len(shape) < 2:
            raise IntegrityError(
                f"{self._paths[place.part]}: the vector {tensor.name!a} is of type {tensor.type.name}"
            )
        else:
            form = FORMAT_OF_TYPE[tensor.type.name]
            self.tensors[name] = SourceTensor(name, "U8", shape, packed_as=form)
        self._places[name] = _Place(place.part, tensor, self._permuted_head(metadata, name, shape))
        if name.endswith(_RATES):
            self._computed[name] = partial(self._logarithms, place.part, tensor)
        if name.endswith(_SCORES):
            scale = name.removesuffix(_SCORES) + "_res_norm.weight"
            self.tensors[scale] = SourceTensor(scale, "F32", (shape[-1],))
            self._computed[scale] = partial(_ones, shape[-1])

    def _permuted_head(self, metadata: Metadata, name: str, shape: tuple[int, ...]) -> int | None:
        """Rows of one head, if the rows of this tensor are stored permuted within each head."""
        kind = next((kind for kind in ("q_proj", "k_proj") if name.rpartition(".")[0].endswith(kind)), None)
        if not NAMES[metadata.architecture].is_permuted or kind is None:
            return None
        heads = metadata.integer(".attention.head_count")
        if kind == "k_proj":
            heads = metadata.integer(".attention.head_count_kv", heads)
        if shape[0] % heads or shape[0] // heads % 2:
            raise IntegrityError(f"{self.path}: {name} has {shape[0]} rows for {heads} heads")
        return shape[0] // heads

    def state(self) -> str:
        """See `TensorSource.state`."""
        stats = [path.stat() for path in self._paths]
        was = [self._before.get(n, Before(s.st_size, s.st_mtime_ns)) for n, s in enumerate(stats)]
        return repr([(w.nbytes, w.mtime_ns, s.st_ino) for w, s in zip(was, stats, strict=True)])

    @property
    def given_back(self) -> Mapping[int, Path]:
        """See `parted.PartedSource.given_back`."""
        return {part: self._paths[part] for part in self._before}

    def part_of(self, name: str) -> int | None:
        """See `parted.PartedSource.part_of`."""
        return self._places[name].part if name in self._places else None

    def give_back(self, part: int) -> int:
        """See `parted.PartedSource.give_back`. A file with several names is left whole: its space would not
        become free."""
        if part in self._before or self._paths[part].stat().st_nlink > 1:
            return 0
        self._before[part], nbytes = cut_down(self._paths[part], self._header_bytes[part])
        return nbytes

    def auxiliary_files(self) -> Mapping[str, bytes]:
        config = (json.dumps(self.config, indent=1) + "\n").encode()
        return {"config.json": config, **self._auxiliary}

    def read_rows(self, name: str, start: int, stop: int, out: Bytes) -> None:
        computed = self._computed.get(name)
        if computed is not None:
            out[:] = computed()[start:stop].view(np.uint8)
            return
        place, row_bytes = self._places[name], self.tensors[name].row_bytes
        if place.head is None:
            self._read(place.part, place.tensor.offset + start * row_bytes, out)
            return
        low, high = start // place.head * place.head, -(-stop // place.head) * place.head
        rows = np.empty((high - low, row_bytes), np.uint8)
        self._read(place.part, place.tensor.offset + low * row_bytes, rows.reshape(-1))
        wanted = stored_rows(np.arange(start, stop), place.head) - low
        np.take(rows, wanted, axis=0, out=out.reshape(stop - start, row_bytes))

    def _read(self, part: int, offset: int, out: Bytes) -> None:
        if part in self._before:
            raise IntegrityError(
                f"{self._paths[part]}: its weights were given back while it was packed",
                hint="run that pack again with the same output, it goes on where it was",
            )
        read_range(self._files[part], offset, out)

    def _vector(self, part: int, tensor: GgufTensor) -> Floats:
        """The numbers of a float32 tensor. Raises IntegrityError if it is none."""
        if tensor.type != GGMLQuantizationType.F32:
            raise IntegrityError(
                f"{self._paths[part]}: {tensor.name!a} is of type {tensor.type.name}, not F32"
            )
        data = np.empty(tensor.nbytes, np.uint8)
        self._read(part, tensor.offset, data)
        return data.view(np.float32)

    def _logarithms(self, part: int, tensor: GgufTensor) -> Floats:
        """The logarithms of rates that the file has as -exp of them."""
        rates = -self._vector(part, tensor).astype(np.float64)
        if not (rates > 0).all():
            raise IntegrityError(f"{self._paths[part]}: {tensor.name!a} holds a rate that is not negative")
        return np.log(rates).astype(np.float32)

    def close(self) -> None:
        for file in self._files:
            file.close()


def stored_rows(rows: NDArray[np.int64], head: int) -> NDArray[np.int64]:
    """Where GGUF of the llama family stores the given rows of a query or key matrix.

    A head of `head` rows is two halves in the model, rotated in pairs (i, i + head / 2); the converter lays
    such pairs side by side.
    """
    first, within = rows // head * head, rows % head
    half = head // 2
    return first + within % half * 2 + within // half


def _shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that a checkpoint gives the tensor; the order of the elements is the same."""
    if name.endswith(("shared_expert_gate.weight", _SCORES)) and len(shape) == 1:
        return (1, *shape)
    if name.endswith("_conv1d.weight"):
        return (int(np.prod(shape[:-1])), 1, shape[-1])
    if name.endswith(_RATES):
        return (int(np.prod(shape)),)
    if name.endswith(_FLAT) and len(shape) == 3:
        return (shape[0] * shape[1], shape[2])
    return shape


def _ones(count: int) -> Floats:
    return np.ones(count, np.float32)


def _drafts(tensors: Mapping[str, GgufTensor], layers: int) -> set[str]:
    """The tensors of layers behind the model's own, which draft further tokens."""
    found = ((name, _LAYER.match(name)) for name in tensors)
    return {name for name, match in found if match is not None and int(match[1]) >= layers}


def _draft_notes(drafts: set[str], tensors: Mapping[str, GgufTensor]) -> list[str]:
    if not drafts:
        return []
    nbytes = sum(tensors[name].nbytes for name in drafts)
    return [f"left out: {counted(len(drafts), 'tensor')} of layers that draft further tokens, {nbytes} bytes"]
