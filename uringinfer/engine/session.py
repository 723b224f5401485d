"""One conversation: what it has been fed, and the state that the model keeps of it.

A session belongs to an engine and shares its weights. Feeding goes in chunks; each chunk is one pass over the
weights, so a longer chunk reads less and needs more scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import UsageError
from uringinfer.models.base import Floats, Model
from uringinfer.residency.trunk import Trunk


class Session:
    """The state of one conversation. Made by `Engine.session`."""

    def __init__(self, model: Model, trunk: Trunk, context: int, chunk: int) -> None:
        self._model = model
        self._trunk = trunk
        self._chunk = chunk
        self._state = model.new_state(context)
        self._is_whole = True

    @property
    def length(self) -> int:
        """Positions fed."""
        return self._state.length

    @property
    def context(self) -> int:
        """Positions that fit."""
        return self._state.context

    def passes(self, ids: Sequence[int] | NDArray[np.int64], *, all_logits: bool = False) -> Iterator[Floats]:
        """Feeds `ids` chunk by chunk; yields the logits of each chunk.

        Logits are float32 [tokens of the chunk, vocab] if `all_logits`, else [1, vocab] of its last token.
        Raises UsageError if `ids` is empty, holds no token of the model, or does not fit into the context;
        Interrupted if the engine was asked to stop. After a pass that did not end, the session is of no use
        any more and refuses to go on.
        """
        tokens = np.asarray(ids, np.int64)
        self._check(tokens)
        for start in range(0, len(tokens), self._chunk):
            self._is_whole = False
            with self._trunk.begin() as weights:
                logits = self._model.forward(
                    weights, self._state, tokens[start : start + self._chunk], all_logits=all_logits
                )
            self._is_whole = True
            yield logits

    def feed(self, ids: Sequence[int] | NDArray[np.int64], *, all_logits: bool = False) -> Floats:
        """Feeds `ids`; logits float32 [len(ids), vocab] if `all_logits`, else [1, vocab] of the last.

        Raises as `passes` does.
        """
        if all_logits:
            return np.concatenate(list(self.passes(ids, all_logits=True)))
        for logits in self.passes(ids):
            last = logits
        return last

    def step(self, token: int) -> Floats:
        """Feeds one token; logits float32 [vocab] of what follows it. Raises as `passes` does."""
        logits: Floats = self.feed([token])[-1]
        return logits

    def _check(self, tokens: NDArray[np.int64]) -> None:
        if not self._is_whole:
            raise UsageError("this session was interrupted inside a pass", hint="begin a new one")
        if tokens.ndim != 1 or not len(tokens):
            raise UsageError("there is no token to feed", hint="give a prompt of at least one token")
        if self.length + len(tokens) > self.context:
            raise UsageError(
                f"{len(tokens)} tokens after {self.length} do not fit into a context of {self.context}",
                hint="use a longer context (-c) or a shorter prompt",
            )
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= self._model.vocab_size:
            wrong = low if low < 0 else high
            raise UsageError(f"token {wrong} is outside of the vocabulary of {self._model.vocab_size}")
