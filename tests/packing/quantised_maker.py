"""Quantised matrices as their makers' tools write them, and what they are worth; nothing here comes from
the package.

Each function draws codes and scales for a matrix [rows, cols] and gives its tensors, name -> (dtype, array,
shape), and its values in float32. The layouts are those of AutoAWQ (gemm), GPTQModel, compressed-tensors,
modelopt and MLX.
"""

import numpy as np

FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def entry(dtype, array):
    return dtype, np.ascontiguousarray(array), array.shape


def bf16(values):
    """Bits of bfloat16, cut off, and their values."""
    bits = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def numbers(rng, dtype, shape):
    """Random scales of about 0.01 -> their bits and their values."""
    values = rng.uniform(0.005, 0.02, shape).astype(np.float32)
    if dtype == "BF16":
        return bf16(values)
    return values.astype(np.float16), values.astype(np.float16).astype(np.float32)


def words(nibbles, order=range(8)):
    """uint32 [..., n / 8]: nibble i of a word is number order[i] of eight."""
    eights = nibbles.reshape(*nibbles.shape[:-1], -1, 8).astype(np.uint32)
    packed = np.zeros(eights.shape[:-1], np.uint32)
    for place, number in enumerate(order):
        packed |= eights[..., number] << np.uint32(4 * place)
    return packed


def spread(values, cols):
    """[rows, groups] -> [rows, cols]"""
    return np.repeat(values, cols // values.shape[1], axis=1)


def awq(rng, name, rows, cols, group=128, dtype="F16"):
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    codes, zeros = rng.integers(0, 16, (rows, cols)), rng.integers(0, 16, (rows, cols // group))
    bits, scales = numbers(rng, dtype, (rows, cols // group))
    tensors = {
        f"{name}.qweight": entry("I32", words(codes.T, order)),
        f"{name}.qzeros": entry("I32", words(zeros.T, order)),
        f"{name}.scales": entry(dtype, bits.T),
    }
    return tensors, (codes - spread(zeros, cols)).astype(np.float32) * spread(scales, cols)


def gptq(rng, name, rows, cols, group=128, dtype="F16", *, act_order=False, version=1):
    groups = cols // group
    codes, zeros = rng.integers(0, 16, (rows, cols)), rng.integers(1, 16, (rows, groups))
    bits, scales = numbers(rng, dtype, (rows, groups))
    group_of = np.arange(cols) // group
    if act_order:
        group_of = rng.permutation(group_of)
    tensors = {
        f"{name}.qweight": entry("I32", words(codes).T),
        f"{name}.qzeros": entry("I32", words((zeros - (version == 1)).T)),
        f"{name}.scales": entry(dtype, bits.T),
        f"{name}.g_idx": entry("I32", group_of.astype(np.int32)),
    }
    return tensors, (codes - zeros[:, group_of]).astype(np.float32) * scales[:, group_of]


def compressed_int4(rng, name, rows, cols, group=32, dtype="BF16", *, symmetric=True):
    group = group or cols  # none: a scale for each row
    codes = rng.integers(0, 16, (rows, cols))
    zeros = rng.integers(0, 16, (rows, cols // group))
    bits, scales = numbers(rng, dtype, (rows, cols // group))
    tensors = {
        f"{name}.weight_packed": entry("I32", words(codes)),
        f"{name}.weight_scale": entry(dtype, bits),
        f"{name}.weight_shape": entry("I64", np.array([rows, cols])),
    }
    if symmetric:
        return tensors, (codes - 8).astype(np.float32) * spread(scales, cols)
    padded = np.pad(zeros, ((0, -rows % 8), (0, 0)))
    tensors[f"{name}.weight_zero_point"] = entry("I32", words(padded.T).T)
    return tensors, (codes - spread(zeros, cols)).astype(np.float32) * spread(scales, cols)


def e4m3(codes):
    """Values of codes that are no NaNs."""
    exponent, mantissa = codes >> 3 & 15, (codes & 7).astype(np.float64)
    magnitude = np.where(exponent > 0, (8 + mantissa) * 2.0 ** (exponent - 10.0), mantissa * 2.0**-9)
    return np.where(codes & 128, -magnitude, magnitude).astype(np.float32)


def nvfp4(rng, name, rows, cols, *, by_modelopt=False):
    codes = rng.integers(0, 16, (rows, cols)).astype(np.uint8)
    small = rng.integers(60, 0x7F, (rows, cols // 16)).astype(np.uint8)
    factor = np.float32(rng.uniform(0.001, 0.002))
    packed = entry("U8", codes[:, 0::2] | codes[:, 1::2] << 4)
    if by_modelopt:
        tensors = {f"{name}.weight": packed, f"{name}.weight_scale_2": ("F32", np.array([factor]), ())}
        tensors[f"{name}.input_scale"] = ("F32", np.array([0.1], np.float32), ())
        scales = e4m3(small) * factor
    else:
        divisor = np.float32(1) / factor
        tensors = {
            f"{name}.weight_packed": packed,
            f"{name}.weight_global_scale": entry("F32", np.array([divisor])),
        }
        scales = e4m3(small) / divisor
    tensors[f"{name}.weight_scale"] = entry("F8_E4M3", small)
    return tensors, FP4[codes] * spread(scales, cols)


def fp8(rng, name, rows, cols, *, scaled_by="row", dtype="BF16"):
    codes = rng.integers(0, 256, (rows, cols)).astype(np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 1
    shape = {"row": (rows, 1), "matrix": (), "block": (-(-rows // 128), -(-cols // 128))}[scaled_by]
    bits, scales = bf16(rng.uniform(0.0002, 0.0008, shape or (1,)).astype(np.float32))
    if dtype == "F32":
        bits = scales
    tensors = {
        f"{name}.weight": entry("F8_E4M3", codes),
        f"{name}.weight_scale": (dtype, np.ascontiguousarray(bits), shape),
    }
    if scaled_by == "block":
        scales = np.repeat(np.repeat(scales, 128, axis=0), 128, axis=1)[:rows, :cols]
    return tensors, e4m3(codes) * scales


def mlx(rng, name, rows, cols, group=64, dtype="BF16", *, experts=None, bits=4):
    lead = () if experts is None else (experts,)
    codes = rng.integers(0, 1 << bits, (*lead, rows, cols))
    scale_bits, scales = numbers(rng, dtype, (*lead, rows, cols // group))
    bias_bits, biases = numbers(rng, dtype, (*lead, rows, cols // group))
    packed = words(codes) if bits == 4 else np.ascontiguousarray(codes.astype(np.uint8)).view("<u4")
    tensors = {
        f"{name}.weight": entry("U32", packed),
        f"{name}.scales": entry(dtype, scale_bits),
        f"{name}.biases": entry(dtype, bias_bits),
    }
    values = codes.astype(np.float32) * np.repeat(scales, group, axis=-1)
    return tensors, values + np.repeat(biases, group, axis=-1)
