"""GGUF's quantised types that the container keeps packed: the same codes and scales, laid out anew.

A GGUF row is blocks of 32 weights, each its scale followed by its codes; the container has all codes of a
matrix, then all scales. Nibbles change places as well: byte j of a GGUF block holds weights j and j + 16, in
the container it holds weights 2 j and 2 j + 1. No bit of a code or scale changes.

    Q8_0    float16 scale, 32 int8                 -> q8_g32
    Q4_0    float16 scale, 16 bytes of nibbles     -> q4_g32   (both count nibbles from -8)
    MXFP4   E8M0 scale, 16 bytes of nibbles        -> mxfp4
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uringinfer.packing.recipe import FLOATS
from uringinfer.packing.source import Bytes, SourceTensor

BLOCK = 32
SCALES = "_scales"
"""The scales of a tensor are a tensor of their own, under its name with this behind."""


@dataclass(frozen=True, slots=True)
class PackedType:
    """One of GGUF's types: the container's format, and the dtypes of its codes and scales."""

    format: str
    codes: str
    scales: str
    scale_bytes: int

    def tensors(self, name: str, shape: tuple[int, ...]) -> tuple[SourceTensor, SourceTensor]:
        """What a matrix of this type is to the packer: codes and scales."""
        rows, cols = shape
        return (
            SourceTensor(name, self.codes, shape, packed_as=self.format),
            SourceTensor(name + SCALES, self.scales, (rows, cols // BLOCK)),
        )

    def codes_of(self, rows: NDArray[np.uint8]) -> Bytes:
        """Rows as the file has them, uint8 [n, bytes of a row] -> the codes in the container's order."""
        stored = self._blocks(rows)[:, self.scale_bytes :]
        if self.codes != "F4":
            return np.ascontiguousarray(stored).reshape(-1)
        codes = np.concatenate([stored & 15, stored >> 4], axis=1)
        packed: Bytes = (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(-1)
        return packed

    def scales_of(self, rows: NDArray[np.uint8]) -> Bytes:
        """Rows as the file has them -> the scales' bytes."""
        return np.ascontiguousarray(self._blocks(rows)[:, : self.scale_bytes]).reshape(-1)

    def _blocks(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """[n, bytes of a row] -> [n * blocks in a row, bytes of a block]."""
        code_bytes = BLOCK // 2 if self.codes == "F4" else BLOCK
        return rows.reshape(-1, self.scale_bytes + code_bytes)


PACKED = {
    "Q8_0": PackedType("q8_g32", "I8", "F16", 2),
    "Q4_0": PackedType("q4_g32", "F4", "F16", 2),
    "MXFP4": PackedType("mxfp4", "F4", "F8_E8M0", 1),
}
"""By GGUF's name. F4 says no more than that a code has four bits."""

_TYPES = {packed.format: name for name, packed in PACKED.items()}


def quantised_notes(formats: Mapping[tuple[str, str], int]) -> list[str]:
    """What stays packed and what becomes floats, by GGUF's type: of `Layout.quantised`. What is quantised
    again is not told here, since that has a cost of its own to tell (`error_report`)."""
    kinds: dict[str, list[str]] = {}
    for (origin, form), count in sorted(formats.items(), key=lambda item: -item[1]):
        kind = f"{count} of {_TYPES.get(origin, origin)}"
        if origin == form:
            kinds.setdefault("kept packed, bit for bit", []).append(f"{kind} as {form}")
        elif form in FLOATS:
            kinds.setdefault(f"decoded to {form}", []).append(kind)
    return [f"quantised tensors are {what}: {', '.join(kinds[what])}" for what in sorted(kinds, reverse=True)]
