"""Products of vector-quantised matrices through the native kernels, and their tables."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np

from uringinfer.kernels.contract import Tables
from uringinfer.kernels.formats import Weight
from uringinfer.kernels.native_library import floats, lib, pointer, strided_floats
from uringinfer.kernels.numpy_search import STAGES
from uringinfer.kernels.vq_formats import CODEBOOK_SHAPE
from uringinfer.kernels.weight_format import Bytes, Floats

TABLES_AT_ONCE = 8 << 20
"""Bytes of tables in a product of many tokens: what the last cache holds."""
_ALIGN = 64


@dataclass(frozen=True, slots=True)
class NativeTables:
    """The tables of some x [tokens, cols] with the codebook of a weight, for one SIMD level."""

    level: int
    codebook: Floats | None
    tokens: int
    cols: int
    data: Bytes


def table_bytes(level: int, cols: int) -> int:
    """Bytes of one token's tables."""
    return int(lib.kernels_vq_table_bytes(level, STAGES, cols))


def tokens_at_once(level: int, cols: int) -> int:
    """Tokens whose tables are in memory together in a product of many."""
    return max(1, TABLES_AT_ONCE // table_bytes(level, cols))


def product_bytes(level: int, rows: int, cols: int, tokens: int) -> int:
    """Bytes of a product of `tokens` tokens: tables of as many as are in memory together, twice where they
    may be shared, the scales as float32 and the codebook turned."""
    at_once = tokens_at_once(level, cols)
    tables = min(max(1, tokens), at_once) * table_bytes(level, cols) + _ALIGN
    return 2 * tables + 4 * rows + 4 * math.prod(CODEBOOK_SHAPE)


def make_tables(level: int, threads: int, weight: Weight, x: Floats) -> NativeTables:
    """The tables of x [T, cols] with the codebook of `weight`."""
    tokens, cols = x.shape
    codebook = weight.format.codebook
    memory = np.empty(tokens * table_bytes(level, cols) + _ALIGN, np.uint8)
    data = memory[-memory.ctypes.data % _ALIGN :]
    status = lib.kernels_vq_tables(
        level,
        threads,
        STAGES,
        cols,
        floats(codebook),
        tokens,
        floats(x),
        pointer("unsigned char[]", data),
    )
    if status < 0:
        raise MemoryError(os.strerror(-status))
    return NativeTables(level, codebook, tokens, cols, data)


def multiply(level: int, threads: int, weight: Weight, x: Floats, out: Floats, tables: Tables | None) -> None:
    """out [T, rows] = the product with x [T, cols], by the tables given or by new ones.

    Raises ValueError for tables of another x or codebook.
    """
    indices, scales = weight.sections()
    factors = scales.view(np.float16).astype(np.float32)
    if tables is not None:
        made = _checked(tables, level, weight, len(x))
        each = max(1, len(x))
    else:
        made = None
        each = tokens_at_once(level, weight.cols)
    for start in range(0, len(x), each):
        some = x[start : start + each]
        now = made or make_tables(level, threads, weight, some)
        lib.kernels_vq_matmul(
            level,
            threads,
            STAGES,
            weight.rows,
            weight.cols,
            pointer("unsigned char[]", indices),
            floats(factors),
            len(some),
            pointer("unsigned char[]", now.data),
            strided_floats(out[start:]),
            out.strides[0] // out.itemsize,
        )


def _checked(tables: Tables, level: int, weight: Weight, tokens: int) -> NativeTables:
    """`tables` itself, if it is for this weight's codebook and so many tokens."""
    if isinstance(tables, NativeTables):
        found = (tables.level, tables.tokens, tables.cols)
        if found == (level, tokens, weight.cols) and tables.codebook is weight.format.codebook:
            return tables
    raise ValueError(
        f"these tables are not for {tokens} tokens and the codebook of this {weight.format.name}"
    )
