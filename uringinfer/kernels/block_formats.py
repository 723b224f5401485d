"""The formats of quantised checkpoints: MXFP4 and block-scaled FP8. Both keep a checkpoint's bytes.

mxfp4 (OCP microscaling): codes uint8 [rows, ceil(cols / 2)], the low nibble is the even column; then scales
uint8 [rows, ceil(cols / 32)]. A code is a sign and an index into 0, 0.5, 1, 1.5, 2, 3, 4, 6; a scale byte s
is worth 2^(s - 127), and 255 is worth 0.

fp8 (E4M3): codes uint8 [rows, cols]; then scales float32 [ceil(rows / 128), ceil(cols / 128)], the factor of
a block (`weight_scale_inv`). fp8_b16, fp8_b32 and fp8_b64 are the same with smaller square blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.weight_format import Bytes, Floats, RowIndex, WeightFormat, finite, in_groups

MXFP4_GROUP = 32
FP8_BLOCK = 128
FP8_MAX = np.float32(448)

_FP4_MAGNITUDES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)
_FP4_VALUES = np.concatenate([_FP4_MAGNITUDES, -_FP4_MAGNITUDES])
_FP4_MIDDLES = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
FP4_PAIRS = np.stack([np.tile(_FP4_VALUES, 16), np.repeat(_FP4_VALUES, 16)], axis=1).view(np.uint64)[:, 0]
"""Both values of a byte of codes, as the bits of two float32."""
_E8M0_VALUES = np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.float32(0))


def _fp8_values() -> Floats:
    """The 256 values of E4M3: a sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinity."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = np.where(
        exponent > 0, np.ldexp(1 + mantissa / 8, exponent - 7), np.ldexp(mantissa / 8, np.full(256, -6))
    )
    magnitude[(code & 0x7F) == 0x7F] = np.nan
    values: Floats = np.where(code & 0x80, -magnitude, magnitude).astype(np.float32)
    return values


FP8_VALUES = _fp8_values()
_FP8_SMALLEST_NORMAL = np.float32(2.0**-6)


def _nearest_fp4(magnitudes: Floats) -> NDArray[np.uint8]:
    """Index of the nearest of `_FP4_MAGNITUDES`; the even index on a tie."""
    codes = np.zeros(magnitudes.shape, np.uint8)
    for index, middle in enumerate(_FP4_MIDDLES):
        # comparing with all seven is several times as fast as searching among them
        codes += magnitudes > middle if index % 2 == 0 else magnitudes >= middle
    return codes


def _nearest_fp8(magnitudes: Floats) -> NDArray[np.uint8]:
    """The E4M3 code nearest to each magnitude of at most 448; the even code on a tie."""
    bits = np.ascontiguousarray(magnitudes).view(np.uint32)
    # keep three bits of mantissa, rounded as IEEE rounds; then count exponents from -7 instead of -127
    normal = (bits + (np.uint32(0x7FFFF) + (bits >> np.uint32(20) & np.uint32(1)))) >> np.uint32(20)
    subnormal = np.rint(magnitudes * np.float32(512)).astype(np.uint32)
    codes = np.where(magnitudes < _FP8_SMALLEST_NORMAL, subnormal, normal - np.uint32(120 << 3))
    return codes.astype(np.uint8)


def _sign_bit(values: Floats, place: int) -> NDArray[np.uint8]:
    bits: NDArray[np.uint8] = np.where(np.signbit(values), 1 << place, 0).astype(np.uint8)
    return bits


def pack_nibbles(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes [rows, cols] below 16 -> [rows, ceil(cols / 2)]; the even column goes to the low nibble."""
    even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
    return even[:, 0::2] | even[:, 1::2] << np.uint8(4)


def _encode_mxfp4(matrix: Floats) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    groups = in_groups(finite("mxfp4", matrix), MXFP4_GROUP)
    largest = np.abs(groups).max(axis=2)
    # The largest magnitude lands between 4 and 8, where the grid ends at 6 (as in the OCP standard).
    exponent = np.clip(np.frexp(largest)[1] - 3, -127, 127)
    exponent = np.where(largest > 0, exponent, -127)
    scaled = np.ldexp(groups, -exponent[:, :, None])
    codes = _nearest_fp4(np.abs(scaled)) | _sign_bit(scaled, 3)
    codes = codes.reshape(len(matrix), -1)[:, : matrix.shape[1]]
    return pack_nibbles(codes), (exponent + 127).astype(np.uint8)


def _decode_mxfp4(sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
    codes = sections[0].reshape(-1, -(-cols // 2))[index]
    scales = sections[1].reshape(-1, -(-cols // MXFP4_GROUP))[index]
    decode_nibbles(FP4_PAIRS, codes, _E8M0_VALUES[scales], MXFP4_GROUP, out)


def decode_nibbles(
    pairs: NDArray[np.uint64], codes: NDArray[np.uint8], scales: Floats, group: int, out: Floats
) -> None:
    """out [n, cols] = the values of codes [n, ceil(cols / 2)] times scales [n, ceil(cols / group)].

    `pairs` [256] gives both values of a byte. Whole groups are written in place, the rest through a copy.
    """
    cols = out.shape[1]
    with np.errstate(over="ignore"):  # infinity is what a code beyond the largest float is worth
        _scale_nibbles(pairs, codes, scales, group, out, cols // group * group)


def _scale_nibbles(
    pairs: NDArray[np.uint64], codes: NDArray[np.uint8], scales: Floats, group: int, out: Floats, whole: int
) -> None:
    cols = out.shape[1]
    if whole:
        values = np.empty((len(out), whole // 2), np.uint64) if whole < cols else out.view(np.uint64)
        np.take(pairs, codes[:, : whole // 2], out=values, mode="clip")
        groups = values.view(np.float32).reshape(len(out), -1, group)
        np.multiply(groups, scales[:, : whole // group, None], out=groups)
        if whole < cols:
            out[:, :whole] = values.view(np.float32)
    if whole < cols:
        last = pairs[codes[:, whole // 2 :]].view(np.float32)[:, : cols - whole]
        out[:, whole:] = last * scales[:, -1:]


def _mxfp4_sections(rows: int, cols: int) -> tuple[int, ...]:
    return (rows * -(-cols // 2), rows * -(-cols // MXFP4_GROUP))


def _blocks(size: int, block: int) -> int:
    return -(-size // block)


def _encode_fp8(block: int, matrix: Floats) -> tuple[NDArray[np.uint8], Floats]:
    rows, cols = finite("fp8", matrix).shape
    high, wide = _blocks(rows, block), _blocks(cols, block)
    padded = np.pad(matrix, ((0, high * block - rows), (0, wide * block - cols)))
    tiles = padded.reshape(high, block, wide, block)
    scales = (np.abs(tiles).max(axis=(1, 3)) / FP8_MAX).astype(np.float32)
    divisor = np.where(scales > 0, scales, np.float32(1))[:, None, :, None]
    scaled = (tiles / divisor).astype(np.float32).reshape(padded.shape)[:rows, :cols]
    magnitudes = np.minimum(np.abs(scaled), FP8_MAX)
    return _nearest_fp8(magnitudes) | _sign_bit(scaled, 7), scales


def _decode_fp8(block: int, sections: Sequence[Bytes], cols: int, index: RowIndex, out: Floats) -> None:
    codes = sections[0].reshape(-1, cols)
    scales = sections[1].view(np.float32).reshape(-1, _blocks(cols, block))
    rows = np.arange(len(codes))[index] // block
    if out.flags.c_contiguous:
        np.take(FP8_VALUES, codes[index], out=out, mode="clip")
    else:
        out[...] = FP8_VALUES[codes[index]]
    out *= np.repeat(scales[rows], block, axis=1)[:, :cols]


def _fp8_sections(block: int, rows: int, cols: int) -> tuple[int, ...]:
    return (rows * cols, 4 * _blocks(rows, block) * _blocks(cols, block))


def fp8_format(name: str, block: int) -> WeightFormat:
    """E4M3 with one float32 scale for each block of `block` by `block` weights."""
    return WeightFormat(
        name=name,
        bits_per_weight=8 + 32 / block**2,
        row_granularity=block,
        sections=partial(_fp8_sections, block),
        encode_sections=partial(_encode_fp8, block),
        decode_into=partial(_decode_fp8, block),
        group=block,
    )


MXFP4 = WeightFormat(
    name="mxfp4",
    bits_per_weight=4 + 8 / MXFP4_GROUP,
    row_granularity=1,
    sections=_mxfp4_sections,
    encode_sections=_encode_mxfp4,
    decode_into=_decode_mxfp4,
    group=MXFP4_GROUP,
)
FP8 = fp8_format("fp8", FP8_BLOCK)
FP8_SMALL = tuple(fp8_format(f"fp8_b{block}", block) for block in (64, 32, 16))
