"""The frame that most families share: embedding, pre-norm layers of attention and feed-forward, norm, head.

A family's file reads its config and fills this frame; it holds no arithmetic of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import UsageError
from uringinfer.kernels import Kernels
from uringinfer.layers.attention_residual import AttentionResidual
from uringinfer.layers.moe import Moe
from uringinfer.layers.norm import RmsNorm
from uringinfer.layers.rotary import Rotary
from uringinfer.layers.router_gate import RouterGate
from uringinfer.layers.step import Place, Step, joined
from uringinfer.layers.tensors import ExpertLayer, ExpertSource, TensorGroup, TensorSpec
from uringinfer.layers.weights import Floats, Weights
from uringinfer.models.base import Span

_OBJECTS = 4096
"""Bytes that Python itself needs for the objects around the arrays of one pass, at most."""


class Cache(Protocol):
    """What one attention layer remembers."""

    @property
    def nbytes(self) -> int: ...

    @property
    def most_on_trial(self) -> int | None:
        """Tokens fed in a pass of which some can be taken back; None is any number."""
        ...

    def take_back(self, length: int, kernels: Kernels) -> None:
        """Returns to `length` positions, of which the last pass, on trial, fed at least the last one."""
        ...

    def can_rewind(self, length: int) -> bool:
        """Whether the first `length` positions alone can be gone on from, after others were fed."""
        ...

    @property
    def forgets(self) -> bool:
        """Whether later positions may take the place of earlier ones, so that going back needs a snapshot."""
        ...

    def begin_at(self, length: int) -> None:
        """Makes `arrays(length)` the place to fill with what a snapshot kept; 0 empties the cache."""
        ...

    def arrays(self, length: int) -> Mapping[str, NDArray[Any]]:
        """What `length` positions fill, as views by name."""
        ...


class Attention(Protocol):
    """A layer's attention, as the frame uses it."""

    @property
    def rotary(self) -> Rotary | None: ...

    def tensors(self) -> Sequence[TensorSpec]: ...

    def cache_bytes(self, context: int) -> int: ...

    def snapshot_bytes(self, context: int) -> int: ...

    def new_cache(self, context: int) -> Any: ...

    def trial_bytes(self, tokens: int) -> int: ...

    def scratch_bytes(self, chunk: int, spans: int = 1) -> int: ...

    def forward(self, weights: Weights, caches: Sequence[Any], x: Floats, step: Step) -> Floats: ...


class FeedForward(Protocol):
    """A layer's feed-forward part, dense or with experts, as the frame uses it."""

    def tensors(self) -> Sequence[TensorSpec]: ...

    def scratch_bytes(self, chunk: int) -> int: ...

    def forward(self, weights: Weights, x: Floats, step: Step) -> Floats: ...


@dataclass(slots=True)
class Stream:
    """What flows from layer to layer: `hidden` [T, hidden], and, in families that attend over them, what
    earlier `blocks` of layers began with."""

    hidden: Floats
    blocks: list[Floats] = field(default_factory=list)


class Layer(Protocol):
    """A layer, as the frame uses it."""

    @property
    def attention(self) -> Attention: ...

    @property
    def feed_forward(self) -> FeedForward: ...

    def tensors(self) -> Sequence[TensorSpec]: ...

    def forward(self, weights: Weights, caches: Sequence[Any], stream: Stream, step: Step) -> None:
        """Moves `stream` on; may write into its `hidden`. `caches` are this layer's, one for each span."""
        ...


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """x + attention(norm(x)), then x + feed_forward(norm(x)), each addition times `residual_scale`.

    `gates` are the routers that are fetched here, before the feed-forward part: see layers/router_gate.py.
    """

    attention_norm: RmsNorm
    attention: Attention
    feed_forward_norm: RmsNorm
    feed_forward: FeedForward
    gates: tuple[RouterGate, ...] = ()
    residual_scale: float = 1.0

    def tensors(self) -> tuple[TensorSpec, ...]:
        """In order of execution."""
        specs = [*self.attention_norm.tensors(), *self.attention.tensors(), *self.feed_forward_norm.tensors()]
        specs += [spec for gate in self.gates for spec in gate.tensors()]
        return (*specs, *self.feed_forward.tensors())

    def forward(self, weights: Weights, caches: Sequence[Any], stream: Stream, step: Step) -> None:
        """See `Layer.forward`."""
        x = stream.hidden
        normed = self.attention_norm.forward(weights, x)
        x += scaled(self.attention.forward(weights, caches, normed, step), self.residual_scale)
        scale = weights.vector(self.feed_forward_norm.name)
        normed = self.feed_forward_norm.apply(weights, x, scale)
        for gate in self.gates:
            step.fetch_gate(weights, gate)
        x += scaled(self.feed_forward.forward(weights, normed, step), self.residual_scale)
        if isinstance(self.feed_forward, Moe) and self.feed_forward.wants_guess(weights, step):
            normed = self.feed_forward_norm.apply(weights, x, scale)
            self.feed_forward.look_ahead(weights, normed, step, late=True)


@dataclass(slots=True)
class DecoderState:
    """One cache a layer; `length` of `context` positions are filled."""

    caches: list[Cache]
    context: int
    length: int = 0

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for cache in self.caches)

    @property
    def can_rewind(self) -> bool:
        """See `State.can_rewind`."""
        return all(cache.can_rewind(self.length) for cache in self.caches)

    @property
    def most_on_trial(self) -> int | None:
        """See `State.most_on_trial`."""
        bounds = [cache.most_on_trial for cache in self.caches]
        return min((bound for bound in bounds if bound is not None), default=None)

    def take_back(self, length: int, kernels: Kernels) -> None:
        """See `State.take_back`."""
        for cache in self.caches:
            cache.take_back(length, kernels)
        self.length = length

    @property
    def forgets(self) -> bool:
        """See `State.forgets`."""
        return any(cache.forgets for cache in self.caches)

    def begin_at(self, length: int) -> None:
        """See `State.begin_at`."""
        self.length = length
        for cache in self.caches:
            cache.begin_at(length)

    def arrays(self, *, forgotten: bool = False) -> dict[str, NDArray[Any]]:
        """What the positions fed fill of each cache, under 'layers.N.'; `forgotten`: of those that forget."""
        return {
            f"layers.{number}.{name}": array
            for number, cache in enumerate(self.caches)
            if cache.forgets or not forgotten
            for name, array in cache.arrays(self.length).items()
        }


@dataclass(frozen=True, slots=True)
class Decoder:
    """A `Model`: see models/base.py.

    `embedding_scale` and `logits_scale` multiply the embedding and the logits. `closing` attends over the
    blocks of the stream before the last norm. `streams` bounds the arrays [T, hidden] that live beside a
    layer's own: the stream and a normed copy, and what the family's layers keep. `optional_prefix` may stand
    in front of every name in the checkpoint.
    """

    family: str
    hidden_size: int
    vocab_size: int
    max_context: int
    tied: bool
    norm_eps: float
    layers: tuple[Layer, ...]
    ignored: tuple[str, ...] = ()
    embedding_scale: float = 1.0
    logits_scale: float = 1.0
    source_prefix: str = ""
    closing: AttentionResidual | None = None
    streams: int = 2
    optional_prefix: str = ""

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def _norm(self) -> RmsNorm:
        return RmsNorm("norm", f"{self.source_prefix}model.norm", self.hidden_size, self.norm_eps)

    def trunk(self) -> tuple[TensorGroup, ...]:
        """'embedding' (unless the head serves as one), 'layers.N', 'head'."""
        shape = (self.vocab_size, self.hidden_size)
        embedding = f"{self.source_prefix}model.embed_tokens.weight"
        head = f"{self.source_prefix}lm_head.weight"
        groups = [
            TensorGroup(f"layers.{number}", tuple(layer.tensors()))
            for number, layer in enumerate(self.layers)
        ]
        if self.tied:
            table = TensorSpec("lm_head", shape, (embedding, head))
        else:
            table = TensorSpec("lm_head", shape, (head,))
            spec = TensorSpec("embed_tokens", shape, (embedding,), kind="embedding")
            groups.insert(0, TensorGroup("embedding", (spec,)))
        closing = self.closing.tensors() if self.closing else ()
        groups.append(TensorGroup("head", (*closing, *self._norm().tensors(), table)))
        return tuple(with_optional_prefix(group, self.optional_prefix) for group in groups)

    @property
    def experts_per_token(self) -> int:
        return max((moe.gate.router.top_k for moe in self._moes()), default=0)

    def _moes(self) -> list[Moe]:
        return [layer.feed_forward for layer in self.layers if isinstance(layer.feed_forward, Moe)]

    def expert_layers(self) -> tuple[ExpertLayer, ...]:
        return tuple(experts_with_optional_prefix(moe.experts, self.optional_prefix) for moe in self._moes())

    def ignored_sources(self) -> tuple[str, ...]:
        """Old rotary tables, a second copy of tied embeddings, and what the family adds."""
        tied = (r".*lm_head\.weight",) if self.tied else ()
        return (r".*\.rotary_emb\.inv_freq", *tied, *self.ignored)

    def state_bytes(self, context: int) -> int:
        return sum(layer.attention.cache_bytes(context) for layer in self.layers)

    def trial_bytes(self, tokens: int) -> int:
        """See `Model.trial_bytes`."""
        return sum(layer.attention.trial_bytes(tokens) for layer in self.layers)

    def snapshot_bytes(self, context: int) -> int:
        kept = sum(layer.attention.snapshot_bytes(context) for layer in self.layers)
        return kept + 4 * self.vocab_size if kept else 0

    def scratch_bytes(self, chunk: int, context: int, spans: int = 1) -> int:
        """The residual stream and its copies, rotary tables, a layer's largest vector and two routers stay;
        on top comes the larger of a layer's two parts, or the head."""
        gates = 2 * max((moe.gate.held_bytes for moe in self._moes()), default=0)
        rotaries = {layer.attention.rotary for layer in self.layers}
        tables = sum(rotary.table_bytes(chunk) for rotary in rotaries if rotary)
        vectors = max(prod(s.shape) for g in self.trunk() for s in g.tensors if s.kind == "vector")
        parts = max(
            max(layer.attention.scratch_bytes(chunk, spans), layer.feed_forward.scratch_bytes(chunk))
            for layer in self.layers
        )
        head = 4 * spans * (self.vocab_size + self.hidden_size)
        kept = 4 * self.streams * chunk * self.hidden_size + tables + 4 * vectors + gates
        return kept + max(parts, head) + _OBJECTS

    def new_state(self, context: int) -> DecoderState:
        return DecoderState([layer.attention.new_cache(context) for layer in self.layers], context)

    def forward(self, weights: Weights, spans: Sequence[Span]) -> list[Floats]:
        """See `Model.forward`. Raises UsageError for a token outside the vocabulary or a full context."""
        states = [self._checked(span) for span in spans]
        step = Step(
            [(state.length, len(span.ids)) for state, span in zip(states, spans, strict=True)],
            {number for number, span in enumerate(spans) if span.trial},
        )
        ids = np.concatenate([span.ids for span in spans])
        x = weights.embedding("lm_head" if self.tied else "embed_tokens", ids)
        stream = Stream(scaled(x, self.embedding_scale))
        for number, layer in enumerate(self.layers):
            layer.forward(weights, [state.caches[number] for state in states], stream, step)
        for state, place in zip(states, step.places, strict=True):
            state.length += place.count
        logits = self._logits(weights, stream, [*map(_wanted, spans, step.places)])
        ends = np.cumsum([min(span.wanted, len(span.ids)) for span in spans])
        return np.split(logits, ends[:-1])

    def _logits(self, weights: Weights, stream: Stream, wanted: Sequence[slice]) -> Floats:
        """Logits of the stream's rows `wanted`, one range for each span, float32 [rows of all, vocab]."""
        x = joined([stream.hidden[rows] for rows in wanted])
        if self.closing is not None:
            blocks = (joined([block[rows] for rows in wanted]) for block in stream.blocks)
            x = self.closing.forward(weights, [*blocks, x])
        logits = weights.matmul("lm_head", self._norm().forward(weights, x))
        return scaled(logits, self.logits_scale)

    def _checked(self, span: Span) -> DecoderState:
        """The span's state, if its tokens can be fed to it."""
        state, ids = span.state, span.ids
        if not isinstance(state, DecoderState):
            raise UsageError(f"a {type(state).__name__} does not belong to {self.family}")
        if len(ids) == 0:
            raise UsageError("no tokens to feed", hint="a forward pass needs at least one")
        if state.length + len(ids) > state.context:
            raise UsageError(
                f"{len(ids)} tokens after {state.length} do not fit a context of {state.context}",
                hint="ask for a larger context",
            )
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            wrong = int(ids[(ids < 0) | (ids >= self.vocab_size)][0])
            raise UsageError(f"token {wrong} is outside the vocabulary of {self.vocab_size}")
        return state


def _wanted(span: Span, place: Place) -> slice:
    """The rows of a pass whose logits a span asked for."""
    return slice(place.first + place.count - min(span.wanted, place.count), place.first + place.count)


def scaled(x: Floats, factor: float) -> Floats:
    """x * factor, in place; x itself if the factor is one."""
    if factor != 1.0:
        x *= np.float32(factor)
    return x


def with_optional_prefix(group: TensorGroup, prefix: str) -> TensorGroup:
    """The group with `prefix` in front of the names in the checkpoint, or not; first with it."""
    if not prefix:
        return group
    specs = (
        replace(spec, sources=(*(f"{prefix}{name}" for name in spec.sources), *spec.sources))
        for spec in group.tensors
    )
    return TensorGroup(group.name, tuple(specs))


def experts_with_optional_prefix(layer: ExpertLayer, prefix: str) -> ExpertLayer:
    """The same for routed experts."""
    if not prefix:
        return layer

    def prefixed(source: ExpertSource) -> ExpertSource:
        scales = None if source.scales is None else f"{prefix}{source.scales}"
        return replace(source, name=f"{prefix}{source.name}", scales=scales)

    parts = (replace(part, sources=(*map(prefixed, part.sources), *part.sources)) for part in layer.parts)
    return replace(layer, parts=tuple(parts))
