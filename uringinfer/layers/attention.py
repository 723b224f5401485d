"""Grouped-query attention over a key/value cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from uringinfer.layers.kv_cache import MOVED_ROWS, KeyValueCache
from uringinfer.layers.linear import Linear
from uringinfer.layers.norm import RmsNorm
from uringinfer.layers.rotary import Rotary
from uringinfer.layers.step import Step, joined
from uringinfer.layers.tensors import TensorSpec
from uringinfer.layers.weights import Floats, Weights


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """`heads` query heads share `groups` key/value heads of `head_dim` channels.

    `rotary` None leaves positions out. `window` > 0 lets a position see only so many, itself included.
    `query_norm` normalises queries and keys before the rotation: each 'head' by itself, or the 'full'
    projection at once; `clip` > 0 then bounds queries, keys and values. `sinks` adds one learned logit per
    head to the softmax's denominator.
    """

    name: str
    source: str
    hidden: int
    heads: int
    groups: int
    head_dim: int
    scale: float
    rotary: Rotary | None
    window: int = 0
    qkv_bias: bool = False
    output_bias: bool = False
    query_norm: Literal["none", "head", "full"] = "none"
    norm_eps: float = 1e-6
    clip: float = 0.0
    sinks: bool = False

    def _projection(self, part: str, rows: int, cols: int, bias: bool) -> Linear:
        return Linear(f"{self.name}.{part}", f"{self.source}.{part}", rows, cols, bias)

    def _input(self, part: str, heads: int) -> Linear:
        return self._projection(part, heads * self.head_dim, self.hidden, self.qkv_bias)

    def _output(self) -> Linear:
        return self._projection("o_proj", self.hidden, self.heads * self.head_dim, self.output_bias)

    def _norm(self, part: str, heads: int) -> RmsNorm | None:
        if self.query_norm == "none":
            return None
        size = self.head_dim if self.query_norm == "head" else heads * self.head_dim
        return RmsNorm(f"{self.name}.{part}", f"{self.source}.{part}", size, self.norm_eps)

    def tensors(self) -> tuple[TensorSpec, ...]:
        """q_proj, q_norm, k_proj, k_norm, v_proj, sinks, o_proj."""
        specs: list[TensorSpec] = []
        for letter, heads in (("q", self.heads), ("k", self.groups)):
            specs += self._input(f"{letter}_proj", heads).tensors()
            norm = self._norm(f"{letter}_norm", heads)
            specs += norm.tensors() if norm else ()
        specs += self._input("v_proj", self.groups).tensors()
        if self.sinks:
            specs.append(
                TensorSpec(f"{self.name}.sinks", (self.heads,), (f"{self.source}.sinks",), kind="vector")
            )
        specs += self._output().tensors()
        return tuple(specs)

    def cache_bytes(self, context: int) -> int:
        """Bytes of `new_cache(context)`."""
        return KeyValueCache.bytes_for(self.groups, context, self.head_dim, self.head_dim, self.window)

    def trial_bytes(self, tokens: int) -> int:
        """Nothing: a row of the cache that is taken back is not looked at."""
        return 0

    def snapshot_bytes(self, context: int) -> int:
        """Bytes that a snapshot keeps of `new_cache(context)` at most."""
        size = self.head_dim
        return KeyValueCache.snapshot_bytes_for(self.groups, context, size, size, self.window)

    def new_cache(self, context: int) -> KeyValueCache:
        return KeyValueCache(self.groups, context, self.head_dim, self.head_dim, self.window)

    def scratch_bytes(self, chunk: int, spans: int = 1) -> int:
        """Upper bound of the temporary arrays of `forward`, its result included. With a window, keys are
        moved through a copy; outputs of a long chunk, or of several spans, come in pieces."""
        normed = self.heads if self.query_norm != "none" else 0
        pieces = self.heads if 0 < self.window < chunk or spans > 1 else 0
        channels = self.head_dim * (2 * self.heads + 2 * self.groups + normed + pieces)
        moved = min(self.window, MOVED_ROWS) * self.groups * self.head_dim
        return 4 * (chunk * (channels + self.hidden) + moved)

    def _heads(self, weights: Weights, x: Floats, letter: str, heads: int, step: Step) -> Floats:
        """Queries or keys, normed and rotated: [T, heads, D]."""
        y = self._input(f"{letter}_proj", heads).forward(weights, x)
        norm = self._norm(f"{letter}_norm", heads)
        if norm and self.query_norm == "full":
            y = norm.forward(weights, y)
        y = y.reshape(len(x), heads, self.head_dim)
        if norm and self.query_norm == "head":
            y = norm.forward(weights, y)
        self._clip(y)
        if self.rotary is not None:
            cos, sin = step.tables(self.rotary)
            weights.kernels.rotary(y, cos, sin, interleaved=self.rotary.interleaved)
        return y

    def _clip(self, y: Floats) -> None:
        if self.clip > 0.0:
            np.clip(y, np.float32(-self.clip), np.float32(self.clip), out=y)

    def forward(self, weights: Weights, caches: Sequence[KeyValueCache], x: Floats, step: Step) -> Floats:
        """x [T, hidden] of the step's spans -> [T, hidden]; writes each span's keys and values to its own of
        `caches`."""
        q = self._heads(weights, x, "q", self.heads, step)
        k = self._heads(weights, x, "k", self.groups, step)
        v = self._input("v_proj", self.groups).forward(weights, x)
        self._clip(v)
        v = v.reshape(len(x), self.groups, self.head_dim)
        sinks = weights.vector(f"{self.name}.sinks") if self.sinks else None
        mixed = []
        for place, cache in zip(step.places, caches, strict=True):
            for piece in cache.pieces(place.count):
                here = slice(place.first + piece.start, place.first + piece.stop)
                row = cache.write(place.start + piece.start, k[here], v[here])
                mixed.append(
                    weights.kernels.attention(
                        q[here], cache.keys, cache.values, row, self.scale, window=self.window, sinks=sinks
                    )
                )
        output = joined(mixed)
        return self._output().forward(weights, output.reshape(len(x), self.heads * self.head_dim))
