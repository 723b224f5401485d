"""What a model family is to the rest of the engine.

A family declares its tensors in the order in which `forward` uses them. The packer writes them in that order,
the trunk stream hands them out in that order. Nothing here knows a drive, a budget or a slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from uringinfer.kernels import Kernels
from uringinfer.layers.tensors import ExpertLayer, ExpertPart, ExpertSource, TensorGroup, TensorSpec
from uringinfer.layers.weights import Floats, Ids, Weights

__all__ = [
    "ExpertLayer",
    "ExpertPart",
    "ExpertSource",
    "Floats",
    "Ids",
    "Model",
    "Span",
    "State",
    "TensorGroup",
    "TensorSpec",
    "Weights",
]


class State(Protocol):
    """What one conversation has computed so far: key/value caches, recurrent states."""

    length: int
    """Positions fed."""
    context: int
    """Positions that fit."""

    @property
    def nbytes(self) -> int: ...

    @property
    def can_rewind(self) -> bool:
        """Whether a smaller `length`, set before, takes back what was fed since, or was being fed; not so
        where a position changes a recurrent state, or where a window has moved on."""
        ...

    @property
    def most_on_trial(self) -> int | None:
        """Tokens that a trial may feed; None is any number."""
        ...

    def take_back(self, length: int, kernels: Kernels) -> None:
        """Returns to `length` positions, of which the last pass, on trial, fed at least the last one; bit for
        bit what feeding no more would have left, without another pass over the weights."""
        ...

    @property
    def forgets(self) -> bool:
        """Whether some of it changes with every position or makes room for later ones: only a snapshot takes
        that back."""
        ...

    def begin_at(self, length: int) -> None:
        """Sets `length` to one that was passed before, and makes the arrays that forget the place to fill
        with what a snapshot kept there; 0 is the beginning, which needs none."""
        ...

    def arrays(self, *, forgotten: bool = False) -> Mapping[str, NDArray[Any]]:
        """Every array that a saved session must hold, by name: views of what `length` positions fill; or
        those that a snapshot must hold, what is `forgotten`."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """What one conversation has in a pass: `ids` [T] to feed after `state`, which moves on. The logits of the
    last `wanted` of them are asked for, or of all if that is more than there are. After a `trial`, tokens
    behind the first can be taken back (`State.take_back`)."""

    state: State
    ids: Ids
    wanted: int = 1
    trial: bool = False


class Model(Protocol):
    """One family with one configuration; `models.model_from_config` makes it."""

    @property
    def family(self) -> str: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def num_layers(self) -> int: ...

    @property
    def max_context(self) -> int: ...

    @property
    def experts_per_token(self) -> int:
        """Routed experts that each token uses in a layer that has them; 0 in a dense model."""
        ...

    def trunk(self) -> Sequence[TensorGroup]:
        """Every tensor besides routed experts, in order of execution."""
        ...

    def expert_layers(self) -> Sequence[ExpertLayer]:
        """The layers with routed experts, in order of execution; empty in a dense model."""
        ...

    def ignored_sources(self) -> Sequence[str]:
        """Regular expressions of checkpoint tensors that may be left over (rotary tables, vision towers)."""
        ...

    def state_bytes(self, context: int) -> int:
        """Bytes of `new_state(context)`."""
        ...

    def trial_bytes(self, tokens: int) -> int:
        """Bytes that a state keeps beside its own after a trial of `tokens` tokens."""
        ...

    def snapshot_bytes(self, context: int) -> int:
        """Bytes of a snapshot of a conversation of `context` positions at most, with the logits behind it; 0
        where none is needed to go back."""
        ...

    def scratch_bytes(self, chunk: int, context: int, spans: int = 1) -> int:
        """Upper bound of the arrays that one `forward` of `chunk` tokens in `spans` makes, logits of one
        position of each included. What a kernel uses inside one call is not in it."""
        ...

    def new_state(self, context: int) -> State: ...

    def forward(self, weights: Weights, spans: Sequence[Span]) -> list[Floats]:
        """Feeds every span, one or more, each of another conversation, in one pass over the weights; each
        span's logits, float32 [wanted, vocab], in their order. With native kernels no bit of a span's logits
        depends on the others."""
        ...
