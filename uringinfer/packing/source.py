"""What a checkpoint is to the packer: named tensors whose rows can be read, whatever files hold them.

Two things keep this contract: `checkpoint.CheckpointSource` (safetensors) and `gguf.GgufSource`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.formats import weight_format

Bytes = NDArray[np.uint8]

DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits of one element of each dtype that safetensors knows."""


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A tensor as a source gives it. Its rows run along the last axis: [..., rows, cols] is read as
    [rows of all leading axes, cols]; a vector [n] is n rows of one element. `packed_as` is the container's
    format that the source keeps the matrix in: a row is then bytes, of a format of one section; or, with
    `sections`, the names of tensors that give one section each, its codes alone. `is_whole` says that any
    range of rows takes all of the tensor to read."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    packed_as: str | None = None
    sections: tuple[str, ...] = ()
    is_whole: bool = False

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:-1]) if len(self.shape) > 1 else math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        if self.packed_as is not None:
            sizes = weight_format(self.packed_as).sections(self.rows, self.shape[-1])
            return sizes[0] if self.sections else sum(sizes)
        return -(-math.prod(self.shape) * DTYPE_BITS[self.dtype] // 8)

    @property
    def row_bytes(self) -> int:
        return self.nbytes // self.rows if self.rows else 0


class TensorSource(Protocol):
    """A checkpoint, validated when it was opened."""

    @property
    def path(self) -> Path: ...

    @property
    def config(self) -> Mapping[str, Any]:
        """config.json as Hugging Face writes it, verbatim or synthesised."""
        ...

    @property
    def tensors(self) -> Mapping[str, SourceTensor]: ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the manifest says about where the weights came from; the same for the same files anywhere."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What a person should know about this source: tensors that are decoded, parts that are ignored."""
        ...

    def state(self) -> str:
        """Changes whenever a file of the source is replaced or written to."""
        ...

    def auxiliary_files(self) -> Mapping[str, bytes]:
        """The files to keep beside the weights, by name: tokenizer, chat template, generation settings."""
        ...

    def read_rows(self, name: str, start: int, stop: int, out: Bytes) -> None:
        """Rows [start, stop) of a tensor into `out` (uint8 [rows * row_bytes]). Callable from any thread.

        Raises IntegrityError naming file and offset if the bytes cannot be read.
        """
        ...

    def close(self) -> None: ...
