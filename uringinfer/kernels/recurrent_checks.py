"""Shape checks of the functions around gates, recurrent states and latent attention; each raises ValueError.

Both implementations make them before they touch memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from uringinfer.kernels.checks import dense, require
from uringinfer.kernels.formats import Weight
from uringinfer.kernels.weight_format import Floats

MAX_TAPS = 16
"""The native convolution keeps its filters in registers."""


def conv_shapes(x: Floats, history: Floats, taps: Floats) -> None:
    """x [T, C], history [K - 1, C], taps [C, K]."""
    dense("x", x, 2), dense("history", history, 2), dense("taps", taps, 2)
    channels, count = taps.shape
    require(count <= MAX_TAPS, f"a short convolution has at most {MAX_TAPS} taps, not {count}")
    right = x.shape[1] == channels and history.shape == (count - 1, channels)
    require(right, f"x {x.shape} and history {history.shape} do not meet taps {taps.shape}")


def gate_shapes(z: Floats, bias: Floats, rate: Floats) -> None:
    """z [T, H, D], bias [H, D], rate [H]."""
    dense("z", z, 3), dense("bias", bias, 2), dense("rate", rate, 1)
    right = bias.shape == z.shape[1:] and len(rate) == len(bias)
    require(right, f"z {z.shape} does not meet bias {bias.shape} and rate {rate.shape}")


def delta_shapes(q: Floats, k: Floats, v: Floats, beta: Floats, decay: Floats, state: Floats) -> None:
    """q, k, decay [T, H, K], v [T, H, V], beta [T, H], state [H, K, V]."""
    for name, array in (("q", q), ("k", k), ("v", v), ("decay", decay), ("state", state)):
        dense(name, array, 3)
    heads, keys, values = state.shape
    tokens = len(dense("beta", beta, 2))
    right = q.shape == k.shape == decay.shape == (tokens, heads, keys) and v.shape == (tokens, heads, values)
    right = right and beta.shape == (tokens, heads)
    require(right, f"q {q.shape}, v {v.shape} and beta {beta.shape} do not meet a state {state.shape}")


def source_shapes(sources: Sequence[Floats], query: Floats) -> None:
    """At least one source [T, E], all alike, and query [E]."""
    require(len(sources) > 0, "an attention residual needs at least one source")
    for number, source in enumerate(sources):
        dense(f"source {number}", source, 2)
    shapes = {source.shape for source in sources}
    require(
        len(shapes) == 1 and dense("query", query, 1).shape == sources[0].shape[1:],
        f"sources {sorted(shapes)} do not meet a query {query.shape}",
    )


def head_shapes(weight: Weight, x: Floats, offset: int, rows: int, transposed: bool) -> tuple[int, int]:
    """(rows of the weight for each head, width of the output)."""
    _, heads, width = dense("x", x, 3).shape
    per_head = weight.rows // heads
    right = weight.rows == per_head * heads and offset >= 0 and rows > 0 and offset + rows <= per_head
    right = right and width == (rows if transposed else weight.cols)
    require(
        right,
        f"x {x.shape} does not meet rows {offset} to {offset + rows} of each head"
        f" of a weight [{weight.rows}, {weight.cols}]",
    )
    return per_head, weight.cols if transposed else rows


def latent_shapes(q: Floats, cache: Floats, rank: int, start: int) -> None:
    """q [T, H, W], cache [C, W], rank <= W, positions within C."""
    dense("q", q, 3), dense("cache", cache, 2)
    tokens, _, width = q.shape
    require(cache.shape[1] == width and 0 < rank <= width, f"q {q.shape} does not meet a cache {cache.shape}")
    fits = start >= 0 and start + tokens <= len(cache)
    require(fits, f"positions {start} to {start + tokens} do not fit a cache of {len(cache)}")
