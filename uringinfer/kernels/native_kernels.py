"""The kernels in C, through cffi. The GIL is released while they run.

Importing this module fails with ImportError where the extension was not built. All shapes are checked here:
the C functions trust them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import UsageError
from uringinfer.kernels import checks, native_networks, native_vq
from uringinfer.kernels.affine_formats import column_order
from uringinfer.kernels.contract import SharedTables, Tables
from uringinfer.kernels.float_formats import F32
from uringinfer.kernels.formats import Weight, WeightFormat
from uringinfer.kernels.gated_network import GatedNetwork
from uringinfer.kernels.native_call import format_number, has_ordered_products, has_products, packed
from uringinfer.kernels.native_library import LEVELS, floats, lib, pointer, strided_floats, supported_levels
from uringinfer.kernels.native_recurrent import NativeRecurrent
from uringinfer.kernels.native_vq import NativeTables
from uringinfer.kernels.networks import one_by_one
from uringinfer.kernels.numpy_kernels import DECODING
from uringinfer.kernels.weight_format import Floats

_KINDS = {
    "silu": lib.KERNELS_SILU,
    "gelu_tanh": lib.KERNELS_GELU_TANH,
    "swiglu_oai": lib.KERNELS_SWIGLU_OAI,
    "situ": lib.KERNELS_SITU,
}


DECODED_ROWS = 64
"""Rows of a tile that is decoded in numpy, where the library has no products with a format."""


def read_memory(data: NDArray[np.uint8], threads: int) -> int:
    """Reads contiguous `data` in whole steps of 256 bytes as fast as it goes; the sum of its 64-bit words.

    The time it takes is what the products are measured against.
    """
    return int(lib.kernels_read(threads, data.size, pointer("char[]", data)))


class NativeKernels(NativeRecurrent):
    """`Kernels` in C, at one SIMD level, on `threads` threads.

    Raises UsageError if this machine has not the level asked for.
    """

    name = "native"

    def __init__(self, threads: int = 1, simd: str | None = None) -> None:
        levels = supported_levels()
        self.simd = levels[0] if simd is None else simd
        if self.simd not in levels:
            raise UsageError(
                f"this machine has no '{simd}' kernels", hint=f"choose one of {', '.join(levels)}"
            )
        self.threads = threads
        self.notes: list[str] = []
        self._level = LEVELS[self.simd]

    def tables(self, weight: Weight, x: Floats) -> NativeTables | None:
        """See `Kernels.tables`."""
        if weight.format.codebook is None:
            return None
        checks.dense("x", x, 2)
        checks.require(x.shape[1] == weight.cols, f"x {x.shape} does not meet rows of {weight.cols}")
        if len(x) > native_vq.tokens_at_once(self._level, weight.cols):
            return None
        return native_vq.make_tables(self._level, self.threads, weight, x)

    def product_bytes(
        self, form: WeightFormat, rows: int, cols: int, tokens: int = 1, *, by_heads: bool = False
    ) -> int:
        """See `Kernels.product_bytes`."""
        if form.bind is not None:
            return native_vq.product_bytes(self._level, rows, cols, tokens)
        if has_ordered_products(form) and not by_heads:
            product = lib.kernels_product_bytes(
                self._level, self.threads, format_number(form), cols, max(1, tokens), by_heads
            )
            return int(product) + 4 * cols * tokens
        known, decoded = form if has_products(form) else F32, 0
        if known is not form:
            decoded = DECODING * 4 * cols * (rows if by_heads else min(rows, DECODED_ROWS))
        number = format_number(known)
        return decoded + int(
            lib.kernels_product_bytes(self._level, self.threads, number, cols, max(1, tokens), by_heads)
        )

    def function_bytes(self, nbytes: int) -> int:
        """See `Kernels.function_bytes`. What they take is on the threads' stacks."""
        return 0

    def matmul(
        self, weight: Weight, x: Floats, out: Floats | None = None, *, tables: Tables | None = None
    ) -> Floats:
        """See `Kernels.matmul`."""
        out = checks.matmul_output(weight, x, out)
        if has_ordered_products(weight.format):
            x = np.take(x, column_order(weight.sections()), axis=1)
        elif not has_products(weight.format) and weight.format.codebook is None:
            return self._decoded_matmul(weight, x, out)
        if weight.format.codebook is not None:
            native_vq.multiply(self._level, self.threads, weight, x, out, tables)
            return out
        status = lib.kernels_matmul(
            self._level,
            self.threads,
            *packed(weight),
            len(x),
            floats(x),
            strided_floats(out),
            out.strides[0] // out.itemsize,
        )
        if status < 0:
            raise MemoryError(os.strerror(-status))
        return out

    def _decoded_matmul(self, weight: Weight, x: Floats, out: Floats) -> Floats:
        """The product with a weight that the library does not know: in float32, a tile of rows at a time."""
        buffer, sections = np.zeros((DECODED_ROWS, weight.cols), np.float32), weight.sections()
        for start in range(0, weight.rows, DECODED_ROWS):
            tile = buffer[: weight.rows - start]
            weight.format.decode_into(sections, weight.cols, slice(start, start + len(tile)), tile)
            floats32 = Weight(F32, len(tile), weight.cols, tile.reshape(-1).view(np.uint8))
            self.matmul(floats32, x, out[:, start : start + len(tile)])
        return out

    def rms_norm(self, x: Floats, weight: Floats | None, eps: float) -> Floats:
        """See `Kernels.rms_norm`."""
        checks.norm_weight(x, weight)
        out = np.empty_like(x)
        cols = x.shape[-1]
        rows = x.size // cols if cols else 0
        lib.kernels_rms_norm(
            self._level, self.threads, rows, cols, floats(x), floats(weight), eps, floats(out)
        )
        return out

    def rotary(self, x: Floats, cos: Floats, sin: Floats, *, interleaved: bool = False) -> None:
        """See `Kernels.rotary`."""
        rotated = checks.rotary_shapes(x, cos, sin)
        lib.kernels_rotary(
            self.threads, *x.shape, rotated // 2, interleaved, floats(x), floats(cos), floats(sin)
        )

    def gated(self, kind: str, gate: Floats, up: Floats, *, limit: float = 0.0, alpha: float = 1.0) -> Floats:
        """See `Kernels.gated`."""
        checks.gated_shapes(kind, gate, up)
        out = np.empty_like(gate)
        lib.kernels_gated(
            self._level,
            self.threads,
            _KINDS[kind],
            gate.size,
            floats(gate),
            floats(up),
            limit,
            alpha,
            floats(out),
        )
        return out

    def gated_networks(
        self,
        networks: Sequence[GatedNetwork],
        inputs: Sequence[Floats],
        kind: str,
        *,
        limit: float = 0.0,
        alpha: float = 1.0,
        shared: SharedTables | None = None,
    ) -> Floats:
        """See `Kernels.gated_networks`."""
        checks.gated_networks(kind, networks, inputs)
        if not all(has_products(weight.format) for weight, _ in networks[0].parts()):
            activation = partial(self.gated, kind, limit=limit, alpha=alpha)
            return one_by_one(self, networks, inputs, activation, shared)
        return native_networks.gated_networks(
            self._level, self.threads, networks, inputs, _KINDS[kind], limit, alpha
        )

    def attention(
        self,
        q: Floats,
        keys: Floats,
        values: Floats,
        start: int,
        scale: float,
        *,
        window: int = 0,
        sinks: Floats | None = None,
    ) -> Floats:
        """See `Kernels.attention`."""
        checks.attention_shapes(q, keys, values, start, sinks)
        tokens, heads, size = q.shape
        groups, capacity, value_size = values.shape
        out = np.empty((tokens, heads, value_size), np.float32)
        lib.kernels_attention(
            self._level,
            self.threads,
            tokens,
            heads,
            groups,
            capacity,
            size,
            value_size,
            start,
            window,
            scale,
            floats(q),
            floats(keys),
            floats(values),
            floats(sinks),
            floats(out),
        )
        return out
