"""The four-bit formats of quantised safetensors checkpoints that count their nibbles from anywhere.

Codes uint8 [rows, ceil(cols / 2)], the low nibble is the even column; then scales [rows, ceil(cols /
group)] in float16 or bfloat16; then, by kind:

    q4_gG_T                 nothing                             value = (code - 8) * scale
    q4_gG_T_zeros           nibbles [rows, ceil(groups / 2)]    value = (code - zero) * scale
    q4_gG_T_zeros_order     the same, then int32 [cols]: which column of the matrix each packed one is
    q4_gG_T_biases          numbers of type T [rows, groups]    value = code * scale + bias
    q8_gG_T_biases          the same; codes are bytes [rows, cols]

for groups G of 32, 64 and 128 columns and T of f16 and bf16. Two of these have older names: q4 is
q4_g128_f16, q4_g32 is q4_g32_f16 (group_formats). Nothing here encodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.weight_format import Bytes, Floats, RowIndex, WeightFormat

_NIBBLES = np.arange(16, dtype=np.float32)
_PAIRS = np.stack([np.tile(_NIBBLES, 16), np.repeat(_NIBBLES, 16)], axis=1).view(np.uint64)[:, 0]
"""Both nibbles of a byte, as the bits of two float32."""

GROUPS = (32, 64, 128)
SCALES = ("f16", "bf16")
KINDS = ("", "_zeros", "_zeros_order", "_biases")


@dataclass(frozen=True, slots=True)
class _Affine:
    """One of the formats: `group` columns to a scale, which has the type `scale`; `kind` is out of KINDS."""

    group: int
    scale: str
    kind: str
    bits: int = 4

    @property
    def name(self) -> str:
        return f"q{self.bits}_g{self.group}_{self.scale}{self.kind}"

    def sections(self, rows: int, cols: int) -> tuple[int, ...]:
        groups = -(-cols // self.group)
        sizes = [rows * self._code_bytes(cols), 2 * rows * groups]
        if self.kind == "_biases":
            sizes.append(2 * rows * groups)
        elif self.kind:
            sizes.append(rows * -(-groups // 2))
        if self.kind == "_zeros_order":
            sizes.append(4 * cols)
        return tuple(sizes)

    def _code_bytes(self, cols: int) -> int:
        return -(-cols * self.bits // 8)

    def decode(self, sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
        groups = -(-cols // self.group)
        codes = sections[0].reshape(-1, self._code_bytes(cols))[index]
        scales = self._numbers(sections[1], groups, index)
        values = np.zeros((len(codes), groups * self.group), np.float32)
        numbers = _PAIRS[codes].view(np.float32) if self.bits == 4 else codes
        values[:, : numbers.shape[1]] = numbers
        by_group = values.reshape(len(codes), groups, self.group)
        with np.errstate(all="ignore"):  # scales that are no numbers are the file's affair
            if self.kind == "_biases":
                by_group *= scales
                by_group += self._numbers(sections[2], groups, index)
            else:
                by_group -= self._zeros(sections[2], groups, index) if self.kind else np.float32(8)
                by_group *= scales
        if self.kind == "_zeros_order":
            out[:, column_order(sections)] = values[:, :cols]
        else:
            out[...] = values[:, :cols]

    def _numbers(self, section: Bytes, groups: int, index: RowIndex) -> Floats:
        """float32 [n, groups, 1]"""
        numbers = section.view(np.uint16).reshape(-1, groups)[index][:, :, None]
        if self.scale == "bf16":
            return (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return numbers.view(np.float16).astype(np.float32)

    def _zeros(self, section: Bytes, groups: int, index: RowIndex) -> Floats:
        """float32 [n, groups, 1]"""
        packed = section.reshape(-1, -(-groups // 2))[index]
        return _PAIRS[packed].view(np.float32)[:, :groups, None]

    @property
    def format(self) -> WeightFormat:
        each = 16 + {"": 0, "_biases": 16}.get(self.kind, 4)
        return WeightFormat(
            name=self.name,
            bits_per_weight=self.bits + each / self.group,
            row_granularity=1,
            sections=self.sections,
            decode_into=self.decode,
            group=self.group,
        )


def is_ordered(form: WeightFormat) -> bool:
    """Whether packed columns of the format have an order of their own."""
    return form.name.startswith("q4_") and form.name.endswith("_order")


def column_order(sections: Sequence[Bytes]) -> NDArray[np.int32]:
    """Of such a matrix: packed column i is column order[i]."""
    return sections[3].view(np.int32)


_OLDER = ("q4_g128_f16", "q4_g32_f16")
_ALL = (_Affine(group, scale, kind) for kind in KINDS for scale in SCALES for group in GROUPS)
_BYTES = (_Affine(group, scale, "_biases", 8) for scale in SCALES for group in GROUPS)
AFFINE = tuple(affine.format for affine in (*_ALL, *_BYTES) if affine.name not in _OLDER)
OLDER_NAMES = {"q4_g128_f16": "q4", "q4_g32_f16": "q4_g32"}
