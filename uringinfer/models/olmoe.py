"""OLMoE: experts in every layer, and queries and keys normalised over the whole projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.layers.activation import Activation
from uringinfer.layers.moe import Moe
from uringinfer.layers.router_gate import RouterGate
from uringinfer.models.base import Model
from uringinfer.models.common import read_common, read_whole_rotary
from uringinfer.models.config import ConfigReader
from uringinfer.models.experts import read_expert_count, read_top_k, softmax_router, split_or_stacked_experts


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'olmoe'."""
    reader = ConfigReader("olmoe", config)
    common = read_common(reader)
    rotary = read_whole_rotary(reader, common)
    bias = reader.flag("attention_bias")
    clip = reader.number("clip_qkv", 0.0)
    count = read_expert_count(reader)
    router = softmax_router(read_top_k(reader, count), renormalize=reader.flag("norm_topk_prob"))
    reader.finish()

    def moe(layer: int) -> Moe:
        name = f"layers.{layer}.mlp"
        source = f"model.{name}"
        return Moe(
            common.hidden,
            common.inner,
            split_or_stacked_experts(layer, count, f"{source}.experts", common.hidden, common.inner),
            RouterGate(f"{name}.gate", f"{source}.gate", count, common.hidden, router),
            activation=Activation(common.activation),
        )

    return common.decoder(
        (
            common.attention(layer, rotary, qkv_bias=bias, output_bias=bias, query_norm="full", clip=clip),
            moe(layer),
        )
        for layer in range(common.layers)
    )
