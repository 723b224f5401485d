"""What a model family is to the rest of the engine.

A family declares its tensors in the order in which `forward` uses them. The packer writes them in that order,
the trunk stream hands them out in that order. Nothing here knows a drive, a budget or a slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.layers.weights import Floats, Weights

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of the trunk.

    `name` is its name in the container; `sources` are the names it may have in a checkpoint, the first that
    exists is taken. `kind`: 'matrix' may be split into panels of rows and may be re-encoded; 'vector' (any
    small tensor: norm, bias, convolution) is always kept; 'embedding' is a table whose rows are read on
    demand and which no pass streams. `whole` forbids panels. `optional` tensors may be absent from the
    checkpoint.
    """

    name: str
    shape: tuple[int, ...]
    sources: tuple[str, ...]
    kind: Literal["matrix", "vector", "embedding"] = "matrix"
    whole: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Tensors used together: one layer, the embedding, the head. A segment never spans two groups."""

    name: str
    tensors: tuple[TensorSpec, ...]


class State(Protocol):
    """What one conversation has computed so far: key/value caches, recurrent states."""

    length: int
    """Positions fed."""
    context: int
    """Positions that fit."""

    @property
    def nbytes(self) -> int: ...

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Every array that a saved session must hold, by name."""
        ...


class Model(Protocol):
    """One family with one configuration."""

    family: ClassVar[str]
    hidden_size: int
    vocab_size: int
    num_layers: int
    max_context: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Model:
        """Reads a checkpoint's config.json; raises UnsupportedModelError naming a key it cannot honour."""
        ...

    def trunk(self) -> Sequence[TensorGroup]:
        """Every tensor besides routed experts, in order of execution."""
        ...

    def ignored_sources(self) -> Sequence[str]:
        """Regular expressions of checkpoint tensors that may be left over (rotary tables, vision towers)."""
        ...

    def state_bytes(self, context: int) -> int:
        """Bytes of `new_state(context)`."""
        ...

    def scratch_bytes(self, chunk: int, context: int) -> int:
        """Upper bound of the temporary arrays of one `forward` of `chunk` tokens, logits of one position
        included."""
        ...

    def new_state(self, context: int) -> State: ...

    def forward(self, weights: Weights, state: State, ids: Ids, *, all_logits: bool = False) -> Floats:
        """Feeds ids [T] after `state` and advances it; logits [T, vocab] if `all_logits`, else [1, vocab] of
        the last."""
        ...
