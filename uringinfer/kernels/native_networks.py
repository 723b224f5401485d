"""Many gated networks in one native call: see native/kernels/networks.c."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from uringinfer.kernels.gated_network import GatedNetwork
from uringinfer.kernels.native_call import layout, sections
from uringinfer.kernels.native_library import ffi, floats, lib
from uringinfer.kernels.weight_format import Floats


def gated_networks(
    simd: int,
    threads: int,
    networks: Sequence[GatedNetwork],
    inputs: Sequence[Floats],
    kind: int,
    limit: float,
    alpha: float,
) -> Floats:
    """`Kernels.gated_networks` of checked arguments -> [N, T, outer]; `simd` and `kind` are values of the C
    enumerations. Raises MemoryError."""
    first = networks[0]
    out = np.empty((len(networks), len(inputs[0]), first.down.rows), np.float32)
    shape = ffi.new("struct kernels_gated *")
    shape.format, shape.group = zip(*map(layout, (first.gate, first.up, first.down)), strict=True)
    shape.inner, shape.hidden, shape.outer, shape.tokens = first.gate.rows, first.gate.cols, *out.shape[:0:-1]
    shape.kind, shape.limit, shape.alpha = kind, limit, alpha
    given = ffi.new("struct kernels_network[]", len(networks))
    results = floats(out)
    for number, (network, x) in enumerate(zip(networks, inputs, strict=True)):
        _fill(given[number], network)
        given[number].x = floats(x)
        given[number].out = results + number * (out.size // len(networks))
    status = lib.kernels_gated_networks(simd, threads, shape, len(networks), given)
    if status < 0:
        raise MemoryError(os.strerror(-status))
    return out


def _fill(into: Any, network: GatedNetwork) -> None:
    """Pointers to the parts of one network."""
    for part, (weight, bias) in enumerate(network.parts()):
        into.codes[part], into.scales[part] = sections(weight)
        into.bias[part] = floats(bias)
