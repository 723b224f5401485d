"""Kimi Delta Attention: linear attention whose state forgets by key channel and is corrected by the delta
rule.

What a conversation keeps does not grow with its length: one square state for each head, and the last inputs
of three short convolutions. Source: Kimi Linear (arXiv 2510.26692).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from uringinfer.errors import ResidencyError
from uringinfer.kernels import Kernels
from uringinfer.layers.linear import Linear
from uringinfer.layers.norm import RmsNorm
from uringinfer.layers.short_convolution import ShortConvolution
from uringinfer.layers.step import Place, Step, joined
from uringinfer.layers.tensors import TensorSpec
from uringinfer.layers.weights import Floats, Weights

L2_EPS = 1e-6


@dataclass(slots=True)
class Trial:
    """What takes a trial's last tokens back without the weights: where the state stood before them, position
    `start`, and what they did to it. `inputs` are those of the three convolutions, float32 [T, channels];
    `updates` the delta rule's k, v, beta and decay."""

    start: int
    memory: Floats
    history: Floats
    inputs: list[Floats] = field(default_factory=list)
    updates: tuple[Floats, Floats, Floats, Floats] | None = None


class DeltaState:
    """`memory` float32 [heads, key channels, value channels] and `history` float32 [3, taps - 1, channels],
    the last inputs of the convolutions of q, k and v; zeros before the first token. `trial` is there after a
    pass whose last tokens may be taken back."""

    def __init__(self, heads: int, head_dim: int, taps: int) -> None:
        self.memory: Floats = np.zeros((heads, head_dim, head_dim), np.float32)
        self.history: Floats = np.zeros((3, taps - 1, heads * head_dim), np.float32)
        self.trial: Trial | None = None

    def begin(self, place: Place) -> None:
        """Remembers the state before a pass if its tokens are on trial; else forgets the last trial."""
        self.trial = None
        if place.trial:
            self.trial = Trial(place.start, self.memory.copy(), self.history.copy())

    @property
    def most_on_trial(self) -> None:
        """Any number of tokens can be taken back."""
        return None

    def take_back(self, length: int, kernels: Kernels) -> None:
        """Returns to the state behind `length` positions, of which the last trial fed the last.

        The first of its tokens go through the delta rule again, in the order they had: same bits. Raises
        ResidencyError if they were not on trial."""
        trial, self.trial = self.trial, None
        kept = length - trial.start if trial else 0
        if trial is None or trial.updates is None or not 0 < kept <= len(trial.updates[0]):
            raise ResidencyError(f"a recurrent state cannot go back to {length} positions")
        if kept == len(trial.updates[0]):
            return
        for history, before, inputs in zip(self.history, trial.history, trial.inputs, strict=True):
            history[:] = np.concatenate([before, inputs[:kept]])[-len(history) :]
        self.memory[:] = trial.memory
        k, v, beta, decay = (array[:kept] for array in trial.updates)
        kernels.delta_rule(k, k, v, beta, decay, self.memory)

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes + self.history.nbytes

    def can_rewind(self, length: int) -> bool:
        """Whether the state of `length` positions is there: no, every position changes all of it."""
        return False

    @property
    def forgets(self) -> bool:
        """Whether going back needs a snapshot: always."""
        return True

    def begin_at(self, length: int) -> None:
        """Empties the state, for what a snapshot kept or for the first token."""
        self.trial = None
        self.memory[:] = 0
        self.history[:] = 0

    def arrays(self, length: int) -> dict[str, Floats]:
        """The two arrays, for a saved session, whatever the `length`."""
        return {"memory": self.memory, "history": self.history}


@dataclass(frozen=True, slots=True)
class DeltaAttention:
    """`heads` heads of `head_dim` channels, for queries, keys and values alike.

    `lower_bound` None: a channel's decay is exp(-exp(A_log) softplus(z)), otherwise exp(lower_bound
    sigmoid(exp(A_log) z)), where z is the forget gate plus `dt_bias`. `full_rank_gate`: the
    output gate is one matrix (`g_proj`) instead of two (`g_a_proj`, `g_b_proj`).
    """

    name: str
    source: str
    hidden: int
    heads: int
    head_dim: int
    taps: int
    norm_eps: float
    lower_bound: float | None
    full_rank_gate: bool

    @property
    def rotary(self) -> None:
        """No position is rotated."""
        return None

    @property
    def channels(self) -> int:
        """All heads together."""
        return self.heads * self.head_dim

    def _linear(self, part: str, rows: int, cols: int) -> Linear:
        return Linear(f"{self.name}.{part}", f"{self.source}.{part}", rows, cols)

    def _mixed(self, letter: str) -> tuple[Linear, ShortConvolution]:
        """The projection of q, k or v and the convolution behind it."""
        part = f"{letter}_conv1d"
        convolution = ShortConvolution(
            f"{self.name}.{part}", f"{self.source}.{part}", self.channels, self.taps
        )
        return self._linear(f"{letter}_proj", self.channels, self.hidden), convolution

    def _low_rank(self, letter: str) -> tuple[Linear, ...]:
        return (
            self._linear(f"{letter}_a_proj", self.head_dim, self.hidden),
            self._linear(f"{letter}_b_proj", self.channels, self.head_dim),
        )

    def _gate(self) -> tuple[Linear, ...]:
        return (
            (self._linear("g_proj", self.channels, self.hidden),)
            if self.full_rank_gate
            else self._low_rank("g")
        )

    def _beta(self) -> Linear:
        return self._linear("b_proj", self.heads, self.hidden)

    def _norm(self) -> RmsNorm:
        return RmsNorm(f"{self.name}.o_norm", f"{self.source}.o_norm", self.head_dim, self.norm_eps)

    def _output(self) -> Linear:
        return self._linear("o_proj", self.hidden, self.channels)

    def _rates(self) -> TensorSpec:
        """A_log, one value a head; some checkpoints add axes, or pad it to the channels of a head."""
        others: tuple[tuple[int, ...], ...] = ((1, 1, self.heads, 1),)
        if self.head_dim > self.heads:
            others += ((self.head_dim,),)
        name, source = f"{self.name}.A_log", f"{self.source}.A_log"
        return TensorSpec(name, (self.heads,), (source,), kind="vector", other_shapes=others)

    def _bias(self) -> TensorSpec:
        name, source = f"{self.name}.dt_bias", f"{self.source}.dt_bias"
        return TensorSpec(name, (self.channels,), (source,), kind="vector")

    def tensors(self) -> tuple[TensorSpec, ...]:
        """q, k and v, each with its convolution; the decay's, b_proj, the gate's, o_norm, o_proj."""
        specs = [spec for letter in "qkv" for part in self._mixed(letter) for spec in part.tensors()]
        specs += [spec for part in self._low_rank("f") for spec in part.tensors()]
        specs += [self._bias(), self._rates()]
        specs += [spec for part in (self._beta(), *self._gate()) for spec in part.tensors()]
        return (*specs, *self._norm().tensors(), *self._output().tensors())

    def cache_bytes(self, context: int) -> int:
        """Bytes of `new_cache`, the same for every context."""
        return 4 * self.channels * (self.head_dim + 3 * (self.taps - 1))

    def trial_bytes(self, tokens: int) -> int:
        """What a state remembers so that some of `tokens` tokens can be taken back."""
        per_token = 6 * self.channels + self.heads
        return self.cache_bytes(0) + 4 * tokens * per_token

    def snapshot_bytes(self, context: int) -> int:
        """Bytes that a snapshot keeps: all of the state."""
        return self.cache_bytes(context)

    def new_cache(self, context: int) -> DeltaState:
        """The state before the first token; `context` has no part in it."""
        return DeltaState(self.heads, self.head_dim, self.taps)

    def scratch_bytes(self, chunk: int, spans: int = 1) -> int:
        """Upper bound of the temporary arrays of `forward`, its result included: q, k, v, the forget gate,
        its bias and the decay; later the output, its normed copy and the gate. The outputs of several spans
        are put together in a copy."""
        copies = 6 if spans == 1 else 7
        return 4 * (chunk * (copies * self.channels + 2 * self.heads + self.hidden) + self.channels)

    def forward(self, weights: Weights, caches: Sequence[DeltaState], x: Floats, step: Step) -> Floats:
        """x [T, hidden] of the step's spans -> [T, hidden]; each of `caches` moves on by its span's
        tokens."""
        output = self._recur(weights, caches, x, step)
        gate = x
        for part in self._gate():
            gate = part.forward(weights, gate)
        output = self._norm().forward(weights, output).reshape(len(x), self.channels)
        output *= weights.kernels.sigmoid(gate)
        return self._output().forward(weights, output)

    def _recur(self, weights: Weights, caches: Sequence[DeltaState], x: Floats, step: Step) -> Floats:
        """x [T, hidden] -> what each span's state answers, [T, heads, head_dim]."""
        kernels = weights.kernels
        for place, cache in zip(step.places, caches, strict=True):
            cache.begin(place)
        q, k, v = (self._mix(weights, number, letter, caches, x, step) for number, letter in enumerate("qkv"))
        q = kernels.l2_norm(q, L2_EPS, self.head_dim**-0.5)
        k = kernels.l2_norm(k, L2_EPS)
        decay = self._decay(weights, x)
        beta = kernels.sigmoid(self._beta().forward(weights, x))
        for place, cache in zip(step.places, caches, strict=True):
            if cache.trial is not None:
                cache.trial.updates = (
                    step.own(k, place),
                    step.own(v, place),
                    step.own(beta, place),
                    step.own(decay, place),
                )
        answers = [
            kernels.delta_rule(q[rows], k[rows], v[rows], beta[rows], decay[rows], cache.memory)
            for rows, cache in zip((place.rows for place in step.places), caches, strict=True)
        ]
        return joined(answers)

    def _mix(
        self,
        weights: Weights,
        number: int,
        letter: str,
        caches: Sequence[DeltaState],
        x: Floats,
        step: Step,
    ) -> Floats:
        """q, k or v, which is `number` 0, 1 or 2: projected and convolved, [T, heads, head_dim]."""
        projection, convolution = self._mixed(letter)
        y = projection.forward(weights, x)
        for place, cache in zip(step.places, caches, strict=True):
            if cache.trial is not None:
                cache.trial.inputs.append(step.own(y, place))
        y = convolution.forward(weights, [cache.history[number] for cache in caches], y, step)
        return y.reshape(len(x), self.heads, self.head_dim)

    def _decay(self, weights: Weights, x: Floats) -> Floats:
        """x [T, hidden] -> the decay of each key channel [T, heads, head_dim]."""
        z = x
        for part in self._low_rank("f"):
            z = part.forward(weights, z)
        bias = weights.vector(self._bias().name).reshape(self.heads, self.head_dim)
        rate = np.exp(weights.vector(self._rates().name).reshape(-1)[: self.heads])
        return weights.kernels.forget_gate(
            z.reshape(len(x), self.heads, self.head_dim), bias, rate, self.lower_bound
        )
