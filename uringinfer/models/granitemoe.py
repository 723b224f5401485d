"""Granite MoE: experts in every layer, and factors on embedding, attention, residual stream and logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.layers.activation import Activation
from uringinfer.layers.moe import Moe
from uringinfer.layers.router_gate import RouterGate
from uringinfer.layers.tensors import ExpertLayer, ExpertPart, ExpertSource
from uringinfer.models.base import Model
from uringinfer.models.common import Common, read_common, read_whole_rotary
from uringinfer.models.config import ConfigReader
from uringinfer.models.experts import read_expert_count, read_top_k, softmax_router


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'granitemoe'."""
    reader = ConfigReader("granitemoe", config)
    common = read_common(reader)
    rotary = read_whole_rotary(reader, common)
    bias = reader.flag("attention_bias")
    scale = reader.number("attention_multiplier", 1.0)
    embedding_scale = reader.number("embedding_multiplier", 1.0)
    residual_scale = reader.number("residual_multiplier", 1.0)
    logits_scaling = reader.number("logits_scaling", 1.0)
    count = read_expert_count(reader)
    top_k = read_top_k(reader, count)
    reader.finish()
    parts = (
        (
            common.attention(layer, rotary, qkv_bias=bias, output_bias=bias, scale=scale),
            _moe(common, layer, count, top_k),
        )
        for layer in range(common.layers)
    )
    return common.decoder(
        parts,
        embedding_scale=embedding_scale,
        residual_scale=residual_scale,
        logits_scale=1.0 / logits_scaling,
    )


def _moe(common: Common, layer: int, count: int, top_k: int) -> Moe:
    """Experts stacked in `input_linear` (gate, then up) and `output_linear`, or, in GGUF, each matrix in a
    stack of its own."""
    name = f"layers.{layer}.block_sparse_moe"
    source = f"model.{name}"
    wide, narrow = (common.inner, common.hidden), (common.hidden, common.inner)
    fused = f"{source}.input_linear.weight"

    def stack(part: str) -> ExpertSource:
        return ExpertSource(f"{source}.experts.{part}_proj.weight")

    experts = ExpertLayer(
        layer,
        count,
        (
            ExpertPart("gate", wide, (ExpertSource(fused), stack("gate"))),
            ExpertPart("up", wide, (ExpertSource(fused, first=common.inner), stack("up"))),
            ExpertPart("down", narrow, (ExpertSource(f"{source}.output_linear.weight"), stack("down"))),
        ),
    )
    router = softmax_router(top_k, renormalize=True)
    return Moe(
        common.hidden,
        common.inner,
        experts,
        RouterGate(f"{name}.router", f"{source}.router.layer", count, common.hidden, router),
        activation=Activation(common.activation),
    )
