"""The quantised formats from their descriptions, value by value; shares no code with the package.

MXFP4: OCP Microscaling Formats (MX) v1.0, E2M1 elements and E8M0 scales. FP8: E4M3 of the same document.
"""

import math
import struct

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def e8m0(byte):
    return 0.0 if byte == 255 else math.ldexp(1.0, byte - 127)


def e2m1(code):
    return -E2M1[code & 7] if code & 8 else E2M1[code]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    value = math.ldexp(8 + mantissa, exponent - 10) if exponent else math.ldexp(mantissa, -9)
    return -value if code & 0x80 else value


def aligned(offset):
    return -(-offset // 64) * 64


def nibble(data, row_bytes, row, col):
    byte = data[row * row_bytes + col // 2]
    return byte >> 4 if col % 2 else byte & 15


def value(name, data, rows, cols, row, col):
    """Weight [row, col] of a packed matrix, as a Python float."""
    if name == "mxfp4":
        half, groups = -(-cols // 2), -(-cols // 32)
        scale = data[aligned(rows * half) + row * groups + col // 32]
        return e2m1(nibble(data, half, row, col)) * e8m0(scale)
    if name.startswith("fp8"):
        block = int(name.partition("_b")[2] or 128)
        wide = -(-cols // block)
        at = aligned(rows * cols) + 4 * (row // block * wide + col // block)
        return e4m3(data[row * cols + col]) * struct.unpack("<f", data[at : at + 4])[0]
    group = 32 if name.endswith("_g32") else 128
    row_bytes = cols if name.startswith("q8") else -(-cols // 2)
    at = aligned(rows * row_bytes) + 2 * (row * -(-cols // group) + col // group)
    scale = struct.unpack("<e", data[at : at + 2])[0]
    if name.startswith("q8"):
        return struct.unpack("b", data[row * cols + col : row * cols + col + 1])[0] * scale
    return (nibble(data, row_bytes, row, col) - 8) * scale
