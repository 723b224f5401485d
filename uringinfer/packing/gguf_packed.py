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

from uringinfer.packing.recipe import FLOATS
from uringinfer.packing.source import Bytes

BLOCK = 32
"""Weights in a block."""


@dataclass(frozen=True, slots=True)
class PackedType:
    """One of GGUF's types: the container's format, and the bytes of a block's scale and of its codes, which
    are nibbles or bytes."""

    format: str
    scale_bytes: int
    code_bytes: int

    def unpack_blocks(self, rows: Bytes, out: Bytes) -> None:
        """Rows as the file has them, uint8 [n, bytes of a row] -> `out`, as many rows of as many bytes: all
        codes of a row in the container's order, then its scales."""
        blocks = rows.reshape(len(rows), -1, self.scale_bytes + self.code_bytes)
        scales, codes = blocks[..., : self.scale_bytes], blocks[..., self.scale_bytes :]
        if self.code_bytes < BLOCK:
            nibbles = np.concatenate([codes & 15, codes >> 4], axis=2)
            codes = nibbles[..., 0::2] | nibbles[..., 1::2] << 4
        end = blocks.shape[1] * self.code_bytes
        out[:, :end].reshape(codes.shape)[:] = codes
        out[:, end:].reshape(scales.shape)[:] = scales


PACKED = {
    "Q8_0": PackedType("q8_g32", 2, BLOCK),
    "Q4_0": PackedType("q4_g32", 2, BLOCK // 2),
    "MXFP4": PackedType("mxfp4", 1, BLOCK // 2),
}
"""By GGUF's name."""

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
