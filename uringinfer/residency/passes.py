"""One pass over the model: tensors by name, in the order of execution, each exactly once.

A pass keeps the contract `layers.weights.Weights`. It holds at most one segment at a time, and gives it back
as soon as the last tensor in it has been used, so that the slot's next read starts as early as it can.
Between products it lets the reader take completions and start reads: while this thread computes, nobody else
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import ResidencyError
from uringinfer.kernels import Kernels
from uringinfer.kernels.formats import Weight, decode
from uringinfer.residency.embedding import EmbeddingRows
from uringinfer.residency.experts import ExpertCache
from uringinfer.residency.lease import Lease
from uringinfer.residency.order import Piece, Tensor

Floats = NDArray[np.float32]


class TrunkPass:
    """Weights of one forward pass. `order` is every streamed tensor, `tables` every tensor by name.

    `take(number)` leases a segment; `poll()` keeps reads moving. Made by `Trunk.begin`.
    """

    def __init__(
        self,
        kernels: Kernels,
        order: Sequence[Tensor],
        tables: Mapping[str, Tensor],
        embeddings: EmbeddingRows,
        take: Callable[[int], Lease],
        poll: Callable[[], None],
        experts: ExpertCache | None,
    ) -> None:
        self.kernels = kernels
        self._order = order
        self._tables = tables
        self._embeddings = embeddings
        self._take = take
        self._poll = poll
        self._experts = experts
        self._next = 0
        self._segment = -1
        self._lease: Lease | None = None
        self._is_lent = False

    @property
    def experts(self) -> ExpertCache:
        """The routed experts. Raises ResidencyError if the model has none."""
        if self._experts is None:
            raise ResidencyError("this container holds no routed experts")
        return self._experts

    def has(self, name: str) -> bool:
        """Whether the container holds this tensor."""
        return name in self._tables

    def matmul(self, name: str, x: Floats) -> Floats:
        """x [T, n] times the transpose of `name` [m, n] -> [T, m].

        Raises ResidencyError, naming both tensors, if another one is next.
        """
        tensor = self._turn(name)
        if len(tensor.pieces) == 1:
            piece = tensor.pieces[0]
            y = self.kernels.matmul(piece.weight(self._bytes(piece)), x)
            self._used(piece)
            return y
        y = np.empty((x.shape[0], tensor.rows), np.float32)
        for piece in tensor.pieces:
            weight = piece.weight(self._bytes(piece))
            self.kernels.matmul(weight, x, out=y[:, piece.row_start : piece.row_stop])
            self._used(piece)
        return y

    def vector(self, name: str) -> Floats:
        """A small tensor as float32 in its own shape, copied. Raises as `matmul` does."""
        tensor = self._turn(name)
        piece = self._only(tensor)
        values = decode(piece.weight(self._bytes(piece))).reshape(tensor.shape)
        self._used(piece)
        return values

    @contextmanager
    def weight(self, name: str) -> Iterator[Weight]:
        """A whole tensor, packed, valid inside the `with`. Raises as `matmul` does.

        Nothing else may be asked for inside the `with` but rows of an embedding.
        """
        piece = self._only(self._turn(name))
        self._is_lent = True
        yield piece.weight(self._bytes(piece))
        self._is_lent = False
        self._used(piece)

    def embedding(self, name: str, ids: NDArray[np.int64]) -> Floats:
        """Rows `ids` [T] of a table, or of a head that serves as one -> [T, hidden]; at any time."""
        if name not in self._tables:
            raise ResidencyError(f"the container holds no '{name}' to take rows of")
        return self._embeddings.rows(self._tables[name], ids)

    def finish(self) -> None:
        """Ends the pass. Raises ResidencyError, naming the tensor, if one was not used."""
        if self._next < len(self._order):
            raise ResidencyError(f"the pass ended and '{self._order[self._next].name}' was not used")

    def abandon(self) -> None:
        """Ends the pass before its time: what it holds is over, and nothing is read in its place."""
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        self._next = len(self._order)

    def _turn(self, name: str) -> Tensor:
        if self._is_lent:
            raise ResidencyError(f"'{name}' was asked for while '{self._order[self._next - 1].name}' is lent")
        if self._next == len(self._order):
            raise ResidencyError(f"'{name}' was asked for and the pass is over")
        tensor = self._order[self._next]
        if tensor.name != name:
            raise ResidencyError(f"'{name}' was asked for out of turn: '{tensor.name}' is next")
        self._next += 1
        return tensor

    def _only(self, tensor: Tensor) -> Piece:
        if len(tensor.pieces) > 1:
            raise ResidencyError(f"'{tensor.name}' is split into {len(tensor.pieces)} panels, not whole")
        return tensor.pieces[0]

    def _bytes(self, piece: Piece) -> NDArray[np.uint8]:
        if self._lease is None or piece.segment != self._segment:
            self._lease = self._take(piece.segment)
            self._segment = piece.segment
        return self._lease.data

    def _used(self, piece: Piece) -> None:
        if piece.is_last and self._lease is not None:
            self._lease.release()
            self._lease = None
        self._poll()
