"""What a layer declares: its tensors, in the order in which its forward uses them, and its routed experts.

The packer writes in this order, the trunk stream hands out in this order. A layer declares beside the code
that asks, so that the two cannot drift apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of the trunk.

    `name` is its name in the container; `sources` are the names it may have in a checkpoint, the first that
    exists is taken. A source in FP8 has its scales beside it under `<source>_scale_inv`. `kind`: 'matrix' may
    be split into panels of rows and may be re-encoded; 'vector' (any small tensor: norm, bias, convolution)
    is always kept; 'embedding' is a table whose rows are read on demand and which no pass streams. `whole`
    forbids panels, `exact` re-encoding: a router whose weights moved would choose other experts. `optional`
    tensors may be absent from the checkpoint. A vector may instead have one of `other_shapes`; it keeps what
    it has.
    """

    name: str
    shape: tuple[int, ...]
    sources: tuple[str, ...]
    kind: Literal["matrix", "vector", "embedding"] = "matrix"
    whole: bool = False
    exact: bool = False
    optional: bool = False
    other_shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Tensors used together: one layer, the embedding, the head. A segment never spans two groups."""

    name: str
    tensors: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class ExpertSource:
    """Where one part of expert e lies in a checkpoint.

    `name` with "{expert}" in it names one tensor for each expert; without it, the experts are stacked along
    the tensor's first axis and e is an index. `transposed` says that the checkpoint stores a matrix as
    [in, out]. Of the resulting rows [out, in] (or elements, for a bias) the part takes `first`,
    `first + step`, ... as many as its shape says: a fused gate and up is (0, 1) and (rows, 1) if they are
    concatenated, (0, 2) and (1, 2) if they are interleaved.

    `scales` names the tensor of MXFP4 scales, in the same arrangement, and says that `name` holds MXFP4
    blocks [..., rows, cols / 32, 16]. FP8 needs nothing: its scales are under `<name>_scale_inv`.
    """

    name: str
    transposed: bool = False
    first: int = 0
    step: int = 1
    scales: str | None = None


@dataclass(frozen=True, slots=True)
class ExpertPart:
    """One tensor of every expert of a layer: a matrix (rows, cols) or a bias (n,).

    `name` is its name in the record ('gate', 'up', 'down', 'gate_bias', ...). `sources` are alternatives, the
    first that exists in the checkpoint is taken. Biases are kept in float32.
    """

    name: str
    shape: tuple[int, ...]
    sources: tuple[ExpertSource, ...]


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The routed experts of layer `layer`: `count` experts, each with the same parts, in record order."""

    layer: int
    count: int
    parts: tuple[ExpertPart, ...]
