"""What a layer asks of the memory system: weights by name, in the order of execution.

`Weights` is kept by `residency.trunk.TrunkPass` in a run, and by simple dictionaries in tests. Names are
those of the container ("layers.3.self_attn.q_proj"). A forward pass must ask for a layer's tensors in exactly
the order in which its family declared them; the trunk refuses anything else.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels import Kernels
from uringinfer.kernels.formats import Weight

Floats = NDArray[np.float32]


class Weights(Protocol):
    """Weights by name, in the order of execution."""

    kernels: Kernels

    def has(self, name: str) -> bool:
        """Whether the container holds this (optional) tensor."""
        ...

    def matmul(self, name: str, x: Floats) -> Floats:
        """x [T, n] times the transpose of the matrix `name` [m, n] -> [T, m]; panels are joined here."""
        ...

    def vector(self, name: str) -> Floats:
        """A small tensor (norm, bias, convolution) decoded to float32, in its own shape; a copy, safe to
        keep."""
        ...

    def weight(self, name: str) -> AbstractContextManager[Weight]:
        """A tensor declared `whole`, packed; valid inside the `with` only."""
        ...

    def embedding(self, name: str, ids: NDArray[np.int64]) -> Floats:
        """Rows `ids` [T] of an embedding table -> [T, hidden]; outside the order of execution, any time."""
        ...
