"""Routed experts, as configs and checkpoints spell them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uringinfer.layers.moe import Moe
from uringinfer.layers.router import Router
from uringinfer.layers.router_gate import RouterGate
from uringinfer.layers.tensors import ExpertLayer, ExpertPart, ExpertSource
from uringinfer.models.config import ConfigReader
from uringinfer.models.decoder import FeedForward

_COUNT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")
TOP_K_KEYS = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token")
"""Names of how many experts each token takes."""


def read_expert_count(reader: ConfigReader) -> int:
    """The number of routed experts, under whichever of its names."""
    return _agreeing(reader, _COUNT_KEYS)


def read_top_k(reader: ConfigReader, count: int) -> int:
    """How many of `count` experts each token takes, under whichever of its names."""
    top_k = _agreeing(reader, TOP_K_KEYS)
    if top_k > count:
        key = next(key for key in TOP_K_KEYS if reader.get(key) is not None)
        raise reader.refuse(key, f"at most the number of experts, {count}")
    return top_k


def _agreeing(reader: ConfigReader, names: Sequence[str]) -> int:
    """The integer that a config has under at least one of `names`; all that are there must agree."""
    keys = [key for key in names if reader.get(key) is not None] or [names[0]]
    values = {key: reader.integer(key) for key in keys}
    for key in keys[1:]:
        if values[key] != values[keys[0]]:
            raise reader.refuse(key, f"it to agree with {keys[0]}, {values[keys[0]]}")
    return values[keys[0]]


def softmax_router(top_k: int, *, renormalize: bool) -> Router:
    """A softmax over all experts; renormalised, it equals a softmax over the chosen ones."""
    return Router(top_k, "softmax", renormalize)


def split_or_stacked_experts(
    layer: int,
    count: int,
    source: str,
    hidden: int,
    inner: int,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> ExpertLayer:
    """Experts under `source`: one tensor for each matrix of each expert, called by `names`; all stacked in
    `gate_up_proj` and `down_proj`; or stacks called by `names`, as GGUF has them."""

    def part(name: str, split: str, shape: tuple[int, int], stacked: ExpertSource) -> ExpertPart:
        single = ExpertSource(f"{source}.{{expert}}.{split}.weight")
        return ExpertPart(name, shape, (single, stacked, ExpertSource(f"{source}.{split}.weight")))

    fused = f"{source}.gate_up_proj"
    parts = (
        part("gate", names[0], (inner, hidden), ExpertSource(fused)),
        part("up", names[1], (inner, hidden), ExpertSource(fused, first=inner)),
        part("down", names[2], (hidden, inner), ExpertSource(f"{source}.down_proj")),
    )
    return ExpertLayer(layer, count, parts)


def chain_routers(
    feed_forwards: Sequence[FeedForward],
) -> list[tuple[FeedForward, tuple[RouterGate, ...]]]:
    """Each layer's feed-forward part with the routers to fetch in that layer: the next layer's, and its own
    if no layer comes before. A mixture of experts learns of the router after it, to look ahead."""
    chained: list[tuple[FeedForward, tuple[RouterGate, ...]]] = []
    for number, part in enumerate(feed_forwards):
        following = feed_forwards[number + 1] if number + 1 < len(feed_forwards) else None
        later = following.gate if isinstance(following, Moe) else None
        gates = (part.gate,) if number == 0 and isinstance(part, Moe) else ()
        if isinstance(part, Moe):
            part = replace(part, next_gate=later)
        chained.append((part, (*gates, later) if later else gates))
    return chained
