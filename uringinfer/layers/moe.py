"""A mixture of experts: the router's choice for each token, those experts' outputs in its proportions, and
experts that every token shares.

A call is routed whole. Each distinct expert is demanded once, computed as soon as it is there (for a few
tokens, all that are there in few calls of the kernels), and applied to all its tokens; what each token gets
is added in the router's order. So neither the order of arrival nor the number of tokens in the call shows in
the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from uringinfer.kernels import Kernels, SharedTables
from uringinfer.layers.activation import SILU, Activation
from uringinfer.layers.latent_space import LatentSpace
from uringinfer.layers.linear import Linear
from uringinfer.layers.mlp import GatedMlp
from uringinfer.layers.router import Routing
from uringinfer.layers.router_gate import RouterGate
from uringinfer.layers.step import Step
from uringinfer.layers.tensors import ExpertLayer, TensorSpec
from uringinfer.layers.weights import Floats, Ids, Weights
from uringinfer.residency.experts import FEW_TOKENS
from uringinfer.residency.records import ExpertWeights

_BUFFERS = 1 << 17
"""Bytes that numpy's iterators take, at most, where operands are not contiguous (as in `_mix`)."""


_Choice = tuple[tuple[int, ExpertWeights], Ids, Ids]
"""An expert with the tokens that chose it, and at which of their places."""


@dataclass(frozen=True, slots=True)
class Moe:
    """Routed experts, each `inner` channels wide, and at most one shared network.

    `gate` is this layer's router and `next_gate` that of the next layer with experts, if it comes right
    after: both have been fetched into the step when `forward` begins. `shared_gate` scales the shared
    network's output by the sigmoid of one logit. With a `latent` space the routed experts work in there;
    the router and the shared network see the whole hidden state.
    """

    hidden: int
    inner: int
    experts: ExpertLayer
    gate: RouterGate
    next_gate: RouterGate | None = None
    activation: Activation = SILU
    shared: GatedMlp | None = None
    shared_gate: Linear | None = None
    latent: LatentSpace | None = None

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The way into the latent space, the shared network, its gate, the way out; the routers belong to the
        layers before."""
        parts = [part for part in (self.shared, self.shared_gate) if part is not None]
        beside = tuple(spec for part in parts for spec in part.tensors())
        if self.latent is None:
            return beside
        return (*self.latent.way_in(), *beside, *self.latent.way_out())

    @property
    def _width(self) -> int:
        """Channels that a routed expert takes and gives."""
        return self.hidden if self.latent is None else self.latent.size

    def scratch_bytes(self, chunk: int) -> int:
        """Upper bound of the temporary arrays of `forward`, its result included: every token at one expert,
        which is the worst case of a chunk, while outputs wait to be added, or the shared network before
        that."""
        top_k = self.gate.router.top_k
        routing = 8 * self.gate.experts + 4 * top_k
        waiting = (top_k + 1) * self._width + (self._width + self.hidden if self.latent else 0)
        expert = 2 * self._width + 3 * self.inner
        # of few tokens, in one call
        together = min(chunk, FEW_TOKENS) * top_k * (2 * self._width + 3 * self.inner)
        shared = self.shared.scratch_bytes(chunk) if self.shared else 0
        experts = 4 * max(chunk * (waiting + expert), min(chunk, FEW_TOKENS) * waiting + together) + _BUFFERS
        return 4 * chunk * routing + max(experts, shared)

    def forward(self, weights: Weights, x: Floats, step: Step) -> Floats:
        """x [T, hidden] -> [T, hidden]."""
        routing = step.take_gate(self.gate).route(weights.kernels, x)
        look_ahead = partial(self.look_ahead, weights, x, step) if self.wants_guess(weights, step) else None
        with weights.experts.demand(self.experts.layer, routing.experts, look_ahead) as arriving:
            z = x if self.latent is None else self.latent.enter(weights, x)
            shared = self._shared(weights, x, step)
            outputs = np.full((*routing.experts.shape, self._width), np.nan, np.float32)
            tables: SharedTables = {}
            for batch in arriving:
                self._compute(weights.kernels, batch, z, routing.experts, outputs, tables)
        mixed = _mix(outputs, routing)
        if self.latent is not None:
            mixed = self.latent.leave(weights, mixed)
        if shared is not None:
            mixed += shared
        return mixed

    def wants_guess(self, weights: Weights, step: Step) -> bool:
        """Whether `look_ahead` is of use: in decoding only, where reads wait."""
        return (
            self.next_gate is not None and step.is_decoding and weights.experts.wants_guess(self._next_layer)
        )

    def look_ahead(self, weights: Weights, x: Floats, step: Step, *, late: bool = False) -> None:
        """Lets the next layer's router guess from x [T, hidden], a token of each span: this layer's input or,
        `late`, the stream behind this layer, normed alike. Only the next layer's attention is missing there,
        so a late guess names as many experts as a token takes."""
        if self.next_gate is None:
            return
        count = self.next_gate.router.top_k if late else weights.experts.lookahead
        guess = step.gate(self.next_gate).guess(weights.kernels, x, count)
        if len(guess) > 1:  # every token's best guess goes before any token's second
            guess = np.array([list(dict.fromkeys(guess.T.reshape(-1).tolist()))], np.int64)
        weights.experts.hint(self._next_layer, guess[0], late=late)

    @property
    def _next_layer(self) -> int:
        return self.experts.layer + 1

    def _shared(self, weights: Weights, x: Floats, step: Step) -> Floats | None:
        """The shared network's output [T, hidden]."""
        if self.shared is None:
            return None
        y = self.shared.forward(weights, x, step)
        if self.shared_gate is not None:
            y *= weights.kernels.sigmoid(self.shared_gate.forward(weights, x))
        return y

    def _compute(
        self,
        kernels: Kernels,
        batch: Sequence[tuple[int, ExpertWeights]],
        z: Floats,
        chosen: Ids,
        outputs: Floats,
        tables: SharedTables,
    ) -> None:
        """Applies the experts of `batch` to those tokens of z [T, width] that have chosen [T, K] them, and
        puts what comes out into `outputs` [T, K, width]. `tables` are those of z, for all batches of a
        token."""
        if len(z) == 1:
            choices = chosen[0].tolist()
            places = [choices.index(expert) for expert, _ in batch]
            outputs[0, places] = self._apply(kernels, batch, [z] * len(batch), tables)[:, 0]
            return
        alike: dict[int, list[_Choice]] = {}
        for number, expert in enumerate(batch):
            tokens, columns = np.nonzero(chosen == expert[0])
            # of few tokens, experts with as many go in one call; of many, each goes alone: that takes less
            together = len(tokens) if len(z) <= FEW_TOKENS else number
            alike.setdefault(together, []).append((expert, tokens, columns))
        for choices in alike.values():
            results = self._apply(kernels, [expert for expert, *_ in choices], [z[t] for _, t, _ in choices])
            for (_, tokens, columns), result in zip(choices, results, strict=True):
                outputs[tokens, columns] = result

    def _apply(
        self,
        kernels: Kernels,
        batch: Sequence[tuple[int, ExpertWeights]],
        inputs: Sequence[Floats],
        shared: SharedTables | None = None,
    ) -> Floats:
        """Each expert on its own input: N inputs [t, width] -> [N, t, width]."""
        networks = [loaded.network for _, loaded in batch]
        act = self.activation
        return kernels.gated_networks(
            networks, inputs, act.kind, limit=act.limit, alpha=act.alpha, shared=shared
        )


def _mix(outputs: Floats, routing: Routing) -> Floats:
    """Outputs [T, K, width] times shares [T, K], added from the router's first choice to its last."""
    mixed = outputs[:, 0] * routing.shares[:, :1]
    for place in range(1, outputs.shape[1]):
        mixed += outputs[:, place] * routing.shares[:, place : place + 1]
    return mixed
