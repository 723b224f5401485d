"""The layouts of quantised safetensors checkpoints that the container's formats keep, told apart by the
tensors that a matrix `x.weight` is made of; config.json says what these do not (`quantization_config`).

    AWQ                         x.qweight I32 [in, out / 8], x.qzeros, x.scales
    GPTQ                        x.qweight I32 [in / 8, out], x.qzeros, x.scales, x.g_idx
    compressed-tensors, int4    x.weight_packed I32 [out, in / 8], x.weight_scale, x.weight_zero_point
    compressed-tensors, NVFP4   x.weight_packed U8 [out, in / 2], x.weight_scale, x.weight_global_scale
    modelopt, NVFP4             x.weight U8 [out, in / 2], x.weight_scale, x.weight_scale_2
    FP8 by row or by matrix     x.weight F8_E4M3, x.weight_scale
    MLX                         x.weight U32 [out, in / 8], x.scales, x.biases

FP8 by blocks and MXFP4 need nothing done: `matrices` finds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from uringinfer.errors import UnsupportedModelError
from uringinfer.kernels.affine_formats import GROUPS, OLDER_NAMES
from uringinfer.packing.runs import WIDENED
from uringinfer.packing.source import SourceTensor, TensorSource
from uringinfer.packing.stored_parts import (
    AWQ_ORDER,
    ColumnOrder,
    NibblesAlongColumns,
    NibblesAlongRows,
    NibblesOfRows,
    OneForAll,
    RepeatedRows,
    Rows,
    StoredPart,
    TransposedNumbers,
    WidenedRows,
)

_LEFT_OUT = (
    "input_scale",
    "input_scale_ub",
    "input_global_scale",
    "input_zero_point",
    "k_scale",
    "v_scale",
    "kv_cache_scale",
)
_SCALE_NAMES = {"F16": "f16", "BF16": "bf16"}
_BLOCK_SIZES = (16, 32, 64, 128)

_Parts = dict[str, StoredPart]


@dataclass(frozen=True, slots=True)
class KeptMatrix:
    """A matrix [rows, cols] that stays in `format`; `parts` give its sections, out of the source's
    `tensors`."""

    format: str
    rows: int
    cols: int
    parts: tuple[StoredPart, ...]
    tensors: tuple[str, ...]


Found = Iterator[tuple[str, KeptMatrix]]
"""Matrices, each with the name that it would have as floats."""


def left_out(name: str) -> str | None:
    """What the tensor is for, if that is not quantised here: its last word."""
    last = name.rpartition(".")[2]
    return last if last in _LEFT_OUT else None


def find_kept(source: TensorSource) -> dict[str, KeptMatrix]:
    """The quantised matrices of `source`, by the names that they would have as floats.

    Raises UnsupportedModelError naming a tensor whose layout no format keeps.
    """
    found: dict[str, KeptMatrix] = {}
    quantization = _quantization(source.config)
    for name in source.tensors:
        base, _, last = name.rpartition(".")
        finder = _FINDERS.get(last)
        if finder is None:
            continue
        for kept, matrix in finder(_Stored(source, base, quantization)):
            found[kept] = matrix
    return found


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What config.json says about it, in whichever place; nothing if it says nothing."""
    for holder in (config, config.get("text_config")):
        if isinstance(holder, Mapping):
            for key in ("quantization_config", "quantization"):
                value = holder.get(key)
                if isinstance(value, Mapping):
                    return value
    return {}


@dataclass(frozen=True, slots=True)
class _Stored:
    """The tensors `base`.* of a source."""

    source: TensorSource
    base: str
    quantization: Mapping[str, Any]

    def get(self, last: str) -> SourceTensor | None:
        return self.source.tensors.get(f"{self.base}.{last}")

    def need(self, last: str, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> SourceTensor:
        """The tensor `base.last`. Raises UnsupportedModelError unless it is of that shape and of one of
        these dtypes."""
        tensor = self.get(last)
        if tensor is None:
            raise UnsupportedModelError(
                f"tensor {self.base}.{last} is missing, the other parts of it are there"
            )
        if tensor.dtype not in dtypes or tensor.shape != shape:
            raise self.refuse(last, f"{' or '.join(dtypes)} {list(shape)}")
        return tensor

    def refuse(self, last: str, wanted: str) -> UnsupportedModelError:
        """The error for the tensor `base.last`, which is not what is wanted; to be raised."""
        tensor = self.source.tensors[f"{self.base}.{last}"]
        return UnsupportedModelError(
            f"tensor {tensor.name} is {tensor.dtype} {list(tensor.shape)}, which no format keeps",
            hint=f"expected {wanted}",
        )

    def matrix(
        self, form: str, rows: int, cols: int, parts: Mapping[str, StoredPart], *more: str
    ) -> KeptMatrix:
        """A matrix whose sections come out of the tensors that `parts` is keyed by; `more` of its tensors
        say nothing."""
        tensors = tuple(f"{self.base}.{last}" for last in (*parts, *more) if self.get(last) is not None)
        return KeptMatrix(form, rows, cols, tuple(parts.values()), tensors)

    def grouping(self, last: str, cols: int, groups: int) -> tuple[int, int]:
        """(columns to a scale of the format, how often each of the `groups` scales is there then)."""
        group = cols // groups if groups and cols % groups == 0 else 0
        if group in GROUPS:
            return group, 1
        if group and group % GROUPS[-1] == 0:
            return GROUPS[-1], group // GROUPS[-1]
        raise self.refuse(last, f"groups of {', '.join(map(str, GROUPS))} columns or a multiple, of {cols}")

    def name(self, last: str) -> str:
        return f"{self.base}.{last}"


def _format_name(group: int, scale: str, kind: str = "") -> str:
    name = f"q4_g{group}_{scale}{kind}"
    return OLDER_NAMES.get(name, name)


def _find_words(stored: _Stored) -> KeptMatrix | None:
    """AWQ or GPTQ, by the config's quant_method."""
    method, bits = stored.quantization.get("quant_method"), stored.quantization.get("bits")
    weight = stored.source.tensors[stored.name("qweight")]
    if method not in ("awq", "gptq") or bits not in (None, 4):
        raise UnsupportedModelError(
            f"tensor {weight.name} is of {bits} bits by {method}", hint="AWQ and GPTQ of 4 bits are known"
        )
    if weight.dtype != "I32" or len(weight.shape) != 2:
        raise stored.refuse("qweight", "I32 of two axes")
    return (_find_awq if method == "awq" else _find_gptq)(stored, weight)


def _find_awq(stored: _Stored, weight: SourceTensor) -> KeptMatrix:
    version = str(stored.quantization.get("version", "gemm")).lower()
    if version != "gemm":
        raise UnsupportedModelError(
            f"tensor {weight.name} is AWQ's version {version!a}", hint="gemm is known"
        )
    cols, rows = weight.shape[0], 8 * weight.shape[1]
    scales = _transposed_scales(stored, rows)
    groups = scales.shape[0]
    group, times = stored.grouping("scales", cols, groups)
    stored.need("qzeros", ("I32",), (groups, rows // 8))
    parts: _Parts = {
        "qweight": NibblesAlongRows(stored.name("qweight"), AWQ_ORDER),
        "scales": TransposedNumbers(stored.name("scales"), times),
        "qzeros": NibblesAlongRows(stored.name("qzeros"), AWQ_ORDER, times=times),
    }
    return stored.matrix(_format_name(group, _SCALE_NAMES[scales.dtype], "_zeros"), rows, cols, parts)


def _find_gptq(stored: _Stored, weight: SourceTensor) -> KeptMatrix:
    layout = stored.quantization.get("checkpoint_format", "gptq")
    if layout not in ("gptq", "gptq_v2"):
        raise UnsupportedModelError(
            f"tensor {weight.name} is in GPTQ's layout {layout!a}", hint="gptq and gptq_v2 are known"
        )
    cols, rows = 8 * weight.shape[0], weight.shape[1]
    scales = _transposed_scales(stored, rows)
    groups = scales.shape[0]
    group, times = stored.grouping("scales", cols, groups)
    stored.need("qzeros", ("I32",), (groups, -(-rows // 8)))
    order, unordered = None, None
    if stored.quantization.get("desc_act") and groups > 1:
        stored.need("g_idx", ("I32",), (cols,))
        order = ColumnOrder(stored.name("g_idx"), groups)
    elif stored.get("g_idx") is not None:
        stored.need("g_idx", ("I32",), (cols,))
        unordered = ColumnOrder(stored.name("g_idx"), groups)
    parts: _Parts = {
        "qweight": NibblesAlongColumns(stored.name("qweight"), order, unordered),
        "scales": TransposedNumbers(stored.name("scales"), times),
        "qzeros": NibblesAlongRows(stored.name("qzeros"), added=int(layout == "gptq"), times=times),
    }
    kind = "_zeros"
    if order is not None:
        parts["g_idx"], kind = order, "_zeros_order"
    return stored.matrix(_format_name(group, _SCALE_NAMES[scales.dtype], kind), rows, cols, parts, "g_idx")


def _transposed_scales(stored: _Stored, rows: int) -> SourceTensor:
    """`scales` [groups, out] of AWQ and GPTQ."""
    scales = stored.get("scales")
    return stored.need(
        "scales", tuple(_SCALE_NAMES), (scales.shape[0] if scales and scales.shape else 0, rows)
    )


def _find_packed(stored: _Stored) -> KeptMatrix | None:
    """compressed-tensors: four-bit integers, or NVFP4; MXFP4 is found by those who know that it is there."""
    weight = stored.source.tensors[stored.name("weight_packed")]
    if weight.dtype == "U8" and stored.get("weight_global_scale") is not None:
        return _find_nvfp4(stored, "weight_packed", "weight_global_scale", "nvfp4_over")
    if weight.dtype != "I32" or len(weight.shape) != 2:
        return None
    bits = _compressed_bits(stored.quantization)
    if bits - {4}:
        raise UnsupportedModelError(
            f"tensor {weight.name} is of {' or '.join(map(str, sorted(bits)))} bits by compressed-tensors",
            hint="4 bits are known",
        )
    rows, cols = weight.shape[0], 8 * weight.shape[1]
    scales = stored.get("weight_scale")
    groups = scales.shape[1] if scales and len(scales.shape) == 2 else 0
    scales = stored.need("weight_scale", tuple(_SCALE_NAMES), (rows, groups))
    group, times = stored.grouping("weight_scale", cols, groups)
    parts: _Parts = {
        "weight_packed": Rows(stored.name("weight_packed")),
        "weight_scale": _scales(stored.name("weight_scale"), times, groups, stored),
    }
    kind = ""
    if stored.get("weight_zero_point") is not None:
        stored.need("weight_zero_point", ("I32",), (-(-rows // 8), groups))
        parts["weight_zero_point"] = NibblesOfRows(stored.name("weight_zero_point"), times)
        kind = "_zeros"
    if stored.get("weight_g_idx") is not None:
        raise stored.refuse("weight_g_idx", "columns in the order of their groups")
    form = _format_name(group, _SCALE_NAMES[scales.dtype], kind)
    return stored.matrix(form, rows, cols, parts, "weight_shape")


def _compressed_bits(quantization: Mapping[str, Any]) -> set[int]:
    """The bits of weights that compressed-tensors' groups name."""
    groups = quantization.get("config_groups")
    named = list(groups.values()) if isinstance(groups, Mapping) else []
    weights = [group.get("weights") for group in named if isinstance(group, Mapping)]
    bits = [each.get("num_bits") for each in weights if isinstance(each, Mapping)]
    return {each for each in bits if type(each) is int}


def _scales(name: str, times: int, groups: int, stored: _Stored) -> StoredPart:
    if times == 1:
        return Rows(name)
    if groups == 1:
        return RepeatedRows(name, times)
    raise stored.refuse(
        name.rpartition(".")[2], f"groups of {', '.join(map(str, GROUPS))} columns, or of a whole row"
    )


def _find_nvfp4(stored: _Stored, codes: str, factor: str, form: str) -> KeptMatrix:
    weight = stored.source.tensors[stored.name(codes)]
    if weight.dtype != "U8" or len(weight.shape) != 2 or weight.shape[1] % 8:
        raise stored.refuse(codes, "U8 of two axes, sixteen columns to a scale")
    rows, cols = weight.shape[0], 2 * weight.shape[1]
    stored.need("weight_scale", ("F8_E4M3",), (rows, cols // 16))
    one = stored.get(factor)
    if one is None or one.dtype != "F32" or math.prod(one.shape) != 1:
        raise stored.refuse(factor, "a single F32")
    parts: _Parts = {
        codes: Rows(stored.name(codes)),
        "weight_scale": Rows(stored.name("weight_scale")),
        factor: OneForAll(stored.name(factor)),
    }
    return stored.matrix(form, rows, cols, parts)


def _find_scaled(stored: _Stored) -> KeptMatrix | None:
    """What has a `weight` and a `weight_scale`: modelopt's NVFP4, FP8 by row or by matrix."""
    weight, scales = stored.get("weight"), stored.source.tensors[stored.name("weight_scale")]
    if weight is None:
        return None
    if stored.get("weight_scale_2") is not None:
        return _find_nvfp4(stored, "weight", "weight_scale_2", "nvfp4_times")
    if weight.dtype != "F8_E4M3" or len(weight.shape) != 2:
        raise stored.refuse("weight", "F8_E4M3 of two axes, or NVFP4 with a weight_scale_2")
    rows, cols = weight.shape
    if scales.dtype not in WIDENED:
        raise stored.refuse("weight_scale", f"one of {', '.join(WIDENED)}")
    if len(scales.shape) == 2 and any(scales.shape == (-(-rows // b), -(-cols // b)) for b in _BLOCK_SIZES):
        return None
    if scales.shape in ((rows, 1), (rows,)):
        factor: StoredPart = WidenedRows(stored.name("weight_scale"))
    elif math.prod(scales.shape) == 1:
        factor = OneForAll(stored.name("weight_scale"))
    else:
        raise stored.refuse("weight_scale", f"one for all, one for each of {rows} rows, or square blocks")
    parts: _Parts = {"weight": Rows(stored.name("weight")), "weight_scale": factor}
    return stored.matrix("fp8_row", rows, cols, parts)


def _find_biased(stored: _Stored) -> Found:
    """MLX: a `weight` with `scales` and `biases`, or those of all experts, stacked in `switch_mlp`."""
    weight = stored.get("weight")
    if weight is None or weight.dtype != "U32":
        return
    if len(weight.shape) not in (2, 3):
        raise stored.refuse("weight", "U32 of two or three axes")
    bits = _mlx_bits(stored)
    if not isinstance(bits, int) or bits not in (4, 8):
        raise UnsupportedModelError(
            f"tensor {weight.name} is of {bits} bits by MLX", hint="4 and 8 are known"
        )
    biases = stored.source.tensors[stored.name("biases")]
    *stack, rows, cols = *weight.shape[:-1], 32 // bits * weight.shape[-1]
    groups = biases.shape[-1] if biases.shape else 0
    stored.need("biases", tuple(_SCALE_NAMES), (*stack, rows, groups))
    stored.need("scales", (biases.dtype,), (*stack, rows, groups))
    group, times = stored.grouping("scales", cols, groups)
    if times != 1:
        raise stored.refuse("scales", f"groups of {', '.join(map(str, GROUPS))} columns")
    form = f"q{bits}_g{group}_{_SCALE_NAMES[biases.dtype]}_biases"
    for expert in range(*stack or (1,)):
        parts: _Parts = {
            last: Rows(stored.name(last), expert * rows) for last in ("weight", "scales", "biases")
        }
        base = stored.base.replace(".switch_mlp.", f".experts.{expert}.") if stack else stored.base
        yield f"{base}.weight", stored.matrix(form, rows, cols, parts)


def _mlx_bits(stored: _Stored) -> object:
    """The bits of this matrix: its own entry in the config, or the one for all."""
    own = stored.quantization.get(stored.base)
    if isinstance(own, Mapping):
        return own.get("bits", stored.quantization.get("bits"))
    return stored.quantization.get("bits")


def _alone(find: Callable[[_Stored], KeptMatrix | None]) -> Callable[[_Stored], Found]:
    """A finder of one matrix as one of any number."""

    def found(stored: _Stored) -> Found:
        matrix = find(stored)
        if matrix is not None:
            yield stored.name("weight"), matrix

    return found


_FINDERS: Mapping[str, Callable[[_Stored], Found]] = {
    "qweight": _alone(_find_words),
    "weight_packed": _alone(_find_packed),
    "weight_scale": _alone(_find_scaled),
    "biases": _find_biased,
}
