"""Many gated networks in one native call: see native/kernels/networks.c."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from uringinfer.kernels.gated_network import GatedNetwork
from uringinfer.kernels.native_call import matrix, packed
from uringinfer.kernels.native_library import ffi, floats, lib
from uringinfer.kernels.weight_format import Floats

_KNOWN: WeakKeyDictionary[GatedNetwork, Any] = WeakKeyDictionary()
"""Pointers to the parts of networks that were multiplied before: experts in memory are, token after token."""


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
    shape.matrix = [matrix(part.format, part.rows, part.cols) for part, _ in first.parts()]
    shape.tokens = out.shape[1]
    shape.kind, shape.limit, shape.alpha = kind, limit, alpha
    given = ffi.new("struct kernels_network[]", len(networks))
    results, each = floats(out), out.size // len(networks)
    for number, (network, x) in enumerate(zip(networks, inputs, strict=True)):
        given[number] = _parts(network)[0]
        given[number].x = floats(x)
        given[number].out = results + number * each
    status = lib.kernels_gated_networks(simd, threads, shape, len(networks), given)
    if status < 0:
        raise MemoryError(os.strerror(-status))
    return out


def _parts(network: GatedNetwork) -> Any:
    """Pointers to the parts of one network, which keeps them alive; its input and output are left open."""
    known = _KNOWN.get(network)
    if known is None:
        known = _KNOWN[network] = ffi.new("struct kernels_network *")
        for part, (weight, bias) in enumerate(network.parts()):
            _, known.data[part] = packed(weight)
            known.bias[part] = floats(bias)
    return known
