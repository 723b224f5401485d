"""Multi-head latent attention: keys and values of all heads come out of one small latent for each position.

Only the latent and the rotary key are cached. The matrix that would expand a latent into per-head keys and
values (`kv_b_proj`) is absorbed: its key half is applied to the query, its value half to the attended latent,
so the cache is never expanded, and the same arithmetic serves one token and many. Source: DeepSeek-V2 (arXiv
2405.04434).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from uringinfer.kernels import Kernels
from uringinfer.layers.linear import Linear
from uringinfer.layers.norm import RmsNorm
from uringinfer.layers.rotary import Rotary
from uringinfer.layers.step import Step, joined
from uringinfer.layers.tensors import TensorSpec
from uringinfer.layers.weights import Floats, Weights


class LatentCache:
    """`rows` float32 [context, rank + rope]: the normed latent of each position, then its rotary key."""

    def __init__(self, context: int, width: int) -> None:
        self.rows: Floats = np.zeros((context, width), np.float32)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    @property
    def most_on_trial(self) -> None:
        """Any number of tokens can be taken back."""
        return None

    def take_back(self, length: int, kernels: Kernels) -> None:
        """Returns to `length` positions after a trial: the rows behind them are not looked at."""

    def can_rewind(self, length: int) -> bool:
        """Whether the state of `length` positions is there: each keeps its own row."""
        return True

    @property
    def forgets(self) -> bool:
        """Whether positions make room for later ones: no."""
        return False

    def begin_at(self, length: int) -> None:
        """Nothing has to be done to go back."""

    def arrays(self, length: int) -> dict[str, Floats]:
        """What `length` positions fill of the array, for a saved session."""
        return {"rows": self.rows[:length]}


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """`heads` heads, each with a query and key of `nope_dim` + `rope_dim` and a value of `value_dim`
    channels.

    `q_rank` None projects queries at once (`q_proj`), otherwise through a normed latent of that size.
    `latent_eps` belongs to the norms of the query's and the key/value latent. `rotary` None leaves the last
    `rope_dim` channels unrotated. `output_gate` multiplies the heads' output by sigmoid(`g_proj` x).
    `is_split`: instead of `kv_b_proj` there are its two halves, that of the keys transposed, as newer GGUF
    files have them.
    """

    name: str
    source: str
    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    latent_eps: float
    scale: float
    rotary: Rotary | None = None
    output_gate: bool = False
    is_split: bool = False

    @property
    def cache_width(self) -> int:
        """Floats that a position takes in the cache."""
        return self.kv_rank + self.rope_dim

    def _linear(self, part: str, rows: int, cols: int) -> Linear:
        return Linear(f"{self.name}.{part}", f"{self.source}.{part}", rows, cols)

    def _norm(self, part: str, size: int) -> RmsNorm:
        return RmsNorm(f"{self.name}.{part}", f"{self.source}.{part}", size, self.latent_eps)

    def _query_parts(self) -> tuple[Linear | RmsNorm, ...]:
        rows = self.heads * (self.nope_dim + self.rope_dim)
        if self.q_rank is None:
            return (self._linear("q_proj", rows, self.hidden),)
        return (
            self._linear("q_a_proj", self.q_rank, self.hidden),
            self._norm("q_a_layernorm", self.q_rank),
            self._linear("q_b_proj", rows, self.q_rank),
        )

    def _compress(self) -> Linear:
        return self._linear("kv_a_proj_with_mqa", self.cache_width, self.hidden)

    def _latent_norm(self) -> RmsNorm:
        return self._norm("kv_a_layernorm", self.kv_rank)

    def _expand(self, part: str, per_head: int, cols: int) -> TensorSpec:
        shape, name = (self.heads * per_head, cols), f"{self.name}.{part}"
        return TensorSpec(name, shape, (f"{self.source}.{part}.weight",), whole=True)

    def _expanding(self) -> tuple[TensorSpec, ...]:
        """What is absorbed: of each head the keys' rows and then the values', or the keys' columns in one
        matrix and the values' rows in another."""
        if not self.is_split:
            return (self._expand("kv_b_proj", self.nope_dim + self.value_dim, self.kv_rank),)
        keys = self._expand("k_b_proj", self.kv_rank, self.nope_dim)
        return (keys, self._expand("v_b_proj", self.value_dim, self.kv_rank))

    def _gate(self) -> Linear:
        return self._linear("g_proj", self.heads * self.value_dim, self.hidden)

    def _output(self) -> Linear:
        return self._linear("o_proj", self.hidden, self.heads * self.value_dim)

    def tensors(self) -> tuple[TensorSpec, ...]:
        """The query's, then kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj (or k_b_proj and v_b_proj), g_proj,
        o_proj."""
        specs = [spec for part in self._query_parts() for spec in part.tensors()]
        specs += [*self._compress().tensors(), *self._latent_norm().tensors(), *self._expanding()]
        if self.output_gate:
            specs += self._gate().tensors()
        return (*specs, *self._output().tensors())

    def cache_bytes(self, context: int) -> int:
        """Bytes of `new_cache(context)`."""
        return 4 * context * self.cache_width

    def trial_bytes(self, tokens: int) -> int:
        """Nothing: a row of the cache that is taken back is not looked at."""
        return 0

    def snapshot_bytes(self, context: int) -> int:
        """Nothing: every position keeps its own row."""
        return 0

    def new_cache(self, context: int) -> LatentCache:
        return LatentCache(context, self.cache_width)

    def scratch_bytes(self, chunk: int, spans: int = 1) -> int:
        """Upper bound of the temporary arrays of `forward`, its result included. What several spans attended
        is put together in a copy."""
        query = 2 * (self.nope_dim + self.rope_dim) + self.cache_width
        attended = self.kv_rank if spans == 1 else 2 * self.kv_rank
        per_head = query + attended + 3 * self.value_dim
        latents = 2 * (self.q_rank or 0) + 3 * self.cache_width
        return 4 * chunk * (self.heads * per_head + latents + self.hidden)

    def forward(self, weights: Weights, caches: Sequence[LatentCache], x: Floats, step: Step) -> Floats:
        """x [T, hidden] of the step's spans -> [T, hidden]; writes each span's latents to its own of
        `caches`."""
        query = x
        for part in self._query_parts():
            query = part.forward(weights, query)
        query = query.reshape(len(x), self.heads, self.nope_dim + self.rope_dim)
        compressed = self._compress().forward(weights, x)
        latent = np.ascontiguousarray(compressed[:, : self.kv_rank])
        latent = self._latent_norm().forward(weights, latent)
        rope = self._rotated(weights, compressed[:, None, self.kv_rank :], step)[:, 0]
        for place, cache in zip(step.places, caches, strict=True):
            fresh = cache.rows[place.start : place.start + place.count]
            fresh[:, : self.kv_rank] = latent[place.rows]
            fresh[:, self.kv_rank :] = rope[place.rows]

        mixed = self._attend(weights, caches, query, step).reshape(len(x), -1)
        if self.output_gate:
            mixed *= weights.kernels.sigmoid(self._gate().forward(weights, x))
        return self._output().forward(weights, mixed)

    def _rotated(self, weights: Weights, rope: Floats, step: Step) -> Floats:
        """A rotated copy of rope [T, H, rope_dim]."""
        turned = rope.copy()
        if self.rotary is not None:
            cos, sin = step.tables(self.rotary)
            weights.kernels.rotary(turned, cos, sin, interleaved=self.rotary.interleaved)
        return turned

    def _attend(self, weights: Weights, caches: Sequence[LatentCache], query: Floats, step: Step) -> Floats:
        """Queries [T, H, nope + rope] -> [T, H, value], through the absorbed kv_b_proj."""
        kernels = weights.kernels
        nope = np.ascontiguousarray(query[:, :, : self.nope_dim])
        absorbed = np.empty((*query.shape[:2], self.cache_width), np.float32)
        absorbed[:, :, self.kv_rank :] = self._rotated(weights, query[:, :, self.nope_dim :], step)
        keys, *values = self._expanding()
        with weights.weight(keys.name) as expand:
            absorbed[:, :, : self.kv_rank] = (
                kernels.matmul_heads(expand, nope, offset=0, rows=self.kv_rank, transposed=False)
                if self.is_split
                else kernels.matmul_heads(expand, nope, offset=0, rows=self.nope_dim, transposed=True)
            )
            attended = joined(
                [
                    kernels.latent_attention(
                        absorbed[place.rows], cache.rows, self.kv_rank, place.start, self.scale
                    )
                    for place, cache in zip(step.places, caches, strict=True)
                ]
            )
            if not self.is_split:
                return kernels.matmul_heads(
                    expand, attended, offset=self.nope_dim, rows=self.value_dim, transposed=False
                )
        with weights.weight(values[0].name) as expand:
            return kernels.matmul_heads(expand, attended, offset=0, rows=self.value_dim, transposed=False)
