"""Which of ggml's types of tensors are taken, and what others are called: by number, for two forks gave
numbers of their own to types that ggml's own readers would misread."""

from __future__ import annotations

from pathlib import Path

from gguf.constants import GGMLQuantizationType

from uringinfer.errors import UnsupportedModelError
from uringinfer.kernels.ggml_formats import FORMAT_OF_TYPE

FLOATS = {"F32": "F32", "F16": "F16", "BF16": "BF16"}
"""ggml's types of plain floats -> the dtype's name in safetensors."""

_IK_LLAMA = "ik_llama.cpp"
# fmt: off
_FORKS: dict[int, tuple[str, str]] = {
    number: (_IK_LLAMA, name) for number, name in {
        97: "Q8_0_X4", 98: "Q8_1_X4", 99: "Q8_2_X4", 133: "Q6_0", 134: "IQ1_BN", 135: "IQ2_BN", 136: "Q8_K64",
        137: "IQ2_K", 138: "IQ3_K", 139: "IQ4_K", 140: "IQ5_K", 141: "IQ6_K", 144: "IQ4_KS", 145: "IQ2_KS",
        146: "IQ4_KSS", 147: "Q8_K16", 148: "Q8_K32", 149: "Q8_KR8", 150: "Q8_K128", 151: "Q8_KV",
        152: "IQ5_KS", 153: "IQ2_KT", 154: "IQ3_KT", 155: "IQ4_KT", 156: "IQ3_KS", 157: "IQ2_KL",
        158: "IQ1_KT", 202: "Q4_0_R8", 206: "Q5_0_R4", 208: "Q8_0_R8", 210: "Q2_K_R4", 211: "Q3_K_R4",
        212: "Q4_K_R4", 213: "Q5_K_R4", 214: "Q6_K_R4", 216: "IQ2_XXS_R4", 217: "IQ2_XS_R4",
        218: "IQ3_XXS_R4", 219: "IQ1_S_R4", 220: "IQ4_NL_R4", 221: "IQ3_S_R4", 222: "IQ2_S_R4",
        223: "IQ4_XS_R8", 229: "IQ1_M_R4", 230: "BF16_R16", 233: "Q6_0_R4", 335: "IQ2_BN_R4",
        337: "IQ2_K_R4", 338: "IQ3_K_R4", 339: "IQ4_K_R4", 340: "IQ5_K_R4", 344: "IQ4_KS_R4",
        352: "IQ5_KS_R4", 398: "Q8_KV_R8", 399: "Q8_K_R8",
    }.items()
}
# fmt: on
_REMOVED = {4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8"}
"""Types that ggml had once."""


def known_type(path: Path, tensor: str, number: int) -> GGMLQuantizationType:
    """The type of that number. Raises UnsupportedModelError naming tensor, number and, where it is known, the
    type and the fork that it belongs to."""
    if number in _FORKS:
        fork, name = _FORKS[number]
        raise UnsupportedModelError(
            f"{path}: tensor {tensor!a} is of type {number}, {name} of {fork}",
            hint="use a file quantised by llama.cpp itself",
        )
    known = {kind.value: kind for kind in GGMLQuantizationType}
    kind = known.get(number)
    if kind is None or (kind.name not in FLOATS and kind.name not in FORMAT_OF_TYPE):
        called = kind.name if kind is not None else _REMOVED.get(number)
        what = f"type {number}, {called}" if called else f"the unknown type {number}"
        raise UnsupportedModelError(
            f"{path}: tensor {tensor!a} is of {what}",
            hint="use a file of another type, or the safetensors checkpoint",
        )
    return kind
