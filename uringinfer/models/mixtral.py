"""Mixtral: mistral with experts in place of the feed-forward network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.layers.activation import Activation
from uringinfer.layers.moe import Moe
from uringinfer.layers.router_gate import RouterGate
from uringinfer.models.base import Model
from uringinfer.models.common import Common, read_common, read_whole_rotary
from uringinfer.models.config import ConfigReader
from uringinfer.models.experts import read_expert_count, read_top_k, softmax_router, split_or_stacked_experts


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'mixtral'."""
    reader = ConfigReader("mixtral", config)
    common = read_common(reader)
    rotary = read_whole_rotary(reader, common, default_theta=1_000_000.0)
    window = reader.integer("sliding_window", 0)
    count = read_expert_count(reader)
    top_k = read_top_k(reader, count)
    reader.finish()
    return common.decoder(
        (common.attention(layer, rotary, window=window), _moe(common, layer, count, top_k))
        for layer in range(common.layers)
    )


def _moe(common: Common, layer: int, count: int, top_k: int) -> Moe:
    name = f"layers.{layer}.block_sparse_moe"
    source = f"model.{name}"
    router = softmax_router(top_k, renormalize=True)
    return Moe(
        common.hidden,
        common.inner,
        split_or_stacked_experts(
            layer, count, f"{source}.experts", common.hidden, common.inner, ("w1", "w3", "w2")
        ),
        RouterGate(f"{name}.gate", f"{source}.gate", count, common.hidden, router),
        activation=Activation(common.activation),
    )
