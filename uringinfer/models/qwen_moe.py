"""Qwen2-MoE and Qwen3-MoE: their dense relatives with experts in the layers that the config marks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.layers.activation import Activation
from uringinfer.layers.linear import Linear
from uringinfer.layers.mlp import GatedMlp
from uringinfer.layers.moe import Moe
from uringinfer.layers.router_gate import RouterGate
from uringinfer.models.base import Model
from uringinfer.models.common import Common, read_common, read_whole_rotary
from uringinfer.models.config import ConfigReader
from uringinfer.models.decoder import FeedForward
from uringinfer.models.experts import read_expert_count, read_top_k, softmax_router, split_or_stacked_experts


def build_qwen2_moe(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'qwen2_moe'."""
    reader = ConfigReader("qwen2_moe", config)
    common = read_common(reader)
    rotary = read_whole_rotary(reader, common)
    windows = _windows_by_type(reader, common.layers)
    bias = reader.flag("qkv_bias", True)
    shared = reader.integer("shared_expert_intermediate_size")
    feed_forwards = _feed_forwards(reader, common, shared)
    reader.finish()
    return common.decoder(
        (common.attention(layer, rotary, qkv_bias=bias, window=windows[layer]), part)
        for layer, part in enumerate(feed_forwards)
    )


def build_qwen3_moe(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'qwen3_moe'."""
    reader = ConfigReader("qwen3_moe", config)
    common = read_common(reader)
    rotary = read_whole_rotary(reader, common)
    bias = reader.flag("attention_bias")
    window = reader.integer("sliding_window", 0, minimum=0)
    reader.get("max_window_layers")  # checkpoints carry it; the architecture has one window for all layers
    if not reader.flag("use_sliding_window"):
        window = 0
    feed_forwards = _feed_forwards(reader, common, shared=0)
    reader.finish()
    return common.decoder(
        (
            common.attention(
                layer, rotary, qkv_bias=bias, output_bias=bias, query_norm="head", window=window
            ),
            part,
        )
        for layer, part in enumerate(feed_forwards)
    )


def _windows_by_type(reader: ConfigReader, layers: int) -> list[int]:
    """Each layer's sliding window, 0 for none."""
    window = reader.integer("sliding_window", 0, minimum=0)
    reader.get("max_window_layers")  # counts only where layer_types is missing, and then it is refused
    types = reader.per_layer("layer_types", layers, ("full_attention", "sliding_attention"))
    if not reader.flag("use_sliding_window"):
        window = 0
    elif types is None:
        raise reader.refuse("use_sliding_window", "layer_types to say in which layers")
    return [window if kind == "sliding_attention" else 0 for kind in types or ["full_attention"] * layers]


def _feed_forwards(reader: ConfigReader, common: Common, shared: int) -> list[FeedForward]:
    """Experts in every `decoder_sparse_step`-th layer but those of `mlp_only_layers`; `shared` > 0 is the
    width of a shared network."""
    count = read_expert_count(reader)
    top_k = read_top_k(reader, count)
    inner = reader.integer("moe_intermediate_size")
    renormalize = reader.flag("norm_topk_prob")
    step = reader.integer("decoder_sparse_step", 1)
    dense = reader.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(isinstance(layer, int) for layer in dense):
        raise reader.refuse("mlp_only_layers", "a list of layers")

    def moe(layer: int) -> Moe:
        name = f"layers.{layer}.mlp"
        source = f"model.{name}"
        network, gate = None, None
        if shared:
            network = common.mlp(layer, part="mlp.shared_expert", inner=shared)
            gate = Linear(f"{name}.shared_expert_gate", f"{source}.shared_expert_gate", 1, common.hidden)
        return Moe(
            common.hidden,
            inner,
            split_or_stacked_experts(layer, count, f"{source}.experts", common.hidden, inner),
            RouterGate(
                f"{name}.gate",
                f"{source}.gate",
                count,
                common.hidden,
                softmax_router(top_k, renormalize=renormalize),
            ),
            activation=Activation(common.activation),
            shared=network,
            shared_gate=gate,
        )

    def part(layer: int) -> Moe | GatedMlp:
        has_experts = (layer + 1) % step == 0 and layer not in dense
        return moe(layer) if has_experts else common.mlp(layer)

    return [part(layer) for layer in range(common.layers)]
