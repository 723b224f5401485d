"""Quantised twins of tiny checkpoints, in the layouts of published ones.

MXFP4: `X_blocks` uint8 [experts, out, in / 32, 16] and `X_scales` uint8 [experts, out, in / 32] in place of a
stacked matrix `X` [experts, in, out]. FP8: `X` as the bytes of E4M3 [out, in], and `X_scale_inv` float32, one
factor for each square block.
"""

import numpy as np

from uringinfer.kernels.formats import Weight, encode, weight_format


def quantised(checkpoint, quantization):
    """The checkpoint as `quantization` (a config's quantization_config, or None) says."""
    if quantization is None:
        return checkpoint
    if quantization["quant_method"] == "mxfp4":
        convert = _mxfp4
    else:
        block = quantization["weight_block_size"][0]

        def convert(name, array):
            return _fp8(name, array, block)

    return {key: value for name, array in checkpoint.items() for key, value in convert(name, array).items()}


def _sections(fmt, matrix):
    packed = encode(fmt, np.ascontiguousarray(matrix))
    return weight_format(fmt).split(packed.data, packed.rows, packed.cols)


def _mxfp4(name, array):
    if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
        return {name: array}
    count, cols, rows = array.shape
    codes, scales = zip(*(_sections("mxfp4", expert.T) for expert in array), strict=True)
    return {
        f"{name}_blocks": np.array(codes).reshape(count, rows, cols // 32, 16),
        f"{name}_scales": np.array(scales).reshape(count, rows, cols // 32),
    }


def _fp8(name, array, block):
    is_linear = name.endswith("proj.weight") or "_proj_with_mqa" in name
    if not is_linear or array.shape[0] % block or array.shape[1] % block:
        return {name: array}
    codes, scales = _sections(f"fp8_b{block}", array)
    rows, cols = array.shape
    return {
        name: codes.reshape(rows, cols).copy(),
        f"{name}_scale_inv": scales.view(np.float32).reshape(rows // block, cols // block).copy(),
    }


def packed_fp8(codes, scales):
    """A packed matrix from a checkpoint's FP8 bytes [rows, cols] and block scales, bit for bit."""
    rows, cols = codes.shape
    fmt = f"fp8_b{rows // len(scales)}"
    return Weight(weight_format(fmt), rows, cols, weight_format(fmt).join(rows, cols, [codes, scales]))


def packed_mxfp4(blocks, scales):
    """A packed matrix from a checkpoint's MXFP4 bytes, 16 a group, and scales [rows, groups], bit for bit."""
    rows, groups = scales.shape
    data = weight_format("mxfp4").join(rows, 32 * groups, [blocks, scales])
    return Weight(weight_format("mxfp4"), rows, 32 * groups, data)
