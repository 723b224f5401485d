"""What a layer asks of the memory system: weights by name, in the order of execution, and experts by number.

`Weights` is kept by `residency.trunk.TrunkPass` in a run, and by simple dictionaries in tests. Names are
those of the container ("layers.3.self_attn.q_proj"). A forward pass must ask for a layer's tensors in exactly
the order in which its family declared them; the trunk refuses anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels import Kernels
from uringinfer.kernels.formats import Weight
from uringinfer.residency.records import ExpertWeights

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


class Experts(Protocol):
    """Routed experts on demand. `layer` is the number in the family's `ExpertLayer`."""

    lookahead: int
    """How many experts of the next layer a decode step guesses; 0 if none."""

    def wants_guess(self, layer: int) -> bool:
        """Whether a guess about `layer`, whose turn is next, could save a read."""
        ...

    def demand(
        self, layer: int, routed: Ids, meanwhile: Callable[[], None] | None = None
    ) -> AbstractContextManager[Iterator[list[tuple[int, ExpertWeights]]]]:
        """Asks for the experts of `routed` [T, K], each token's in the router's order.

        Every missing one is submitted to the reader before this returns. The iterator gives each distinct
        expert once, in batches: those in memory first, then the others as they arrive. An expert's weights
        are valid until the iterator is advanced or the context is left. `meanwhile` is called once, at the
        latest when the first batch was used: for what may wait until the drive has nothing to do."""
        ...

    def hint(self, layer: int, guessed: Ids, *, late: bool = False) -> None:
        """Says that `layer`, whose turn is next, may demand `guessed` [N], best first. A `late` guess is a
        better one, after an earlier one. Never needed for correctness."""
        ...


class Weights(Protocol):
    """Weights by name, in the order of execution."""

    kernels: Kernels

    @property
    def experts(self) -> Experts:
        """The routed experts; asked for only by models that declare some."""
        ...

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

    def embedding(self, name: str, ids: Ids) -> Floats:
        """Rows `ids` [T] of an embedding table, or of a head that serves as one -> [T, hidden], a new array;
        outside the order of execution, any time."""
        ...
