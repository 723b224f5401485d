"""Gated networks product by product: in numpy, and natively where matrices are vector-quantised, with tables
in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from uringinfer.kernels.contract import Kernels, SharedTables, Tables
from uringinfer.kernels.formats import Weight
from uringinfer.kernels.gated_network import GatedNetwork
from uringinfer.kernels.weight_format import Floats

Activation = Callable[[Floats, Floats], Floats]
"""(gate, up) -> what `down` is multiplied with."""


def one_by_one(
    kernels: Kernels,
    networks: Sequence[GatedNetwork],
    inputs: Sequence[Floats],
    activation: Activation,
    shared: SharedTables | None,
) -> Floats:
    """`Kernels.gated_networks` of checked arguments -> [N, T, outer]. Where all inputs are one array, its
    tables are made once for each codebook, and taken from and left in `shared`."""
    shared = {} if shared is None else shared
    is_one = all(x is inputs[0] for x in inputs)
    out = np.empty((len(networks), len(inputs[0]), networks[0].down.rows), np.float32)
    for result, network, x in zip(out, networks, inputs, strict=True):
        gate, up = (
            _biased(kernels, weight, bias, x, _tables(kernels, weight, x, shared) if is_one else None)
            for weight, bias in ((network.gate, network.gate_bias), (network.up, network.up_bias))
        )
        _biased(kernels, network.down, network.down_bias, activation(gate, up), None, result)
    return out


def _tables(kernels: Kernels, weight: Weight, x: Floats, shared: SharedTables) -> Tables | None:
    if weight.format.codebook is None:
        return None
    key = id(weight.format.codebook)
    if key not in shared:
        tables = kernels.tables(weight, x)
        if tables is None:
            return None
        shared[key] = tables
    return shared[key]


def _biased(
    kernels: Kernels,
    weight: Weight,
    bias: Floats | None,
    x: Floats,
    tables: Tables | None,
    out: Floats | None = None,
) -> Floats:
    y = kernels.matmul(weight, x, out, tables=tables)
    if bias is not None:
        y += bias
    return y
