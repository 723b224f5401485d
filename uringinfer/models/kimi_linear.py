"""Kimi-Linear: three layers of delta attention to one of latent attention, both without positions; experts
behind the first, dense layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.layers.activation import Activation
from uringinfer.layers.mlp import GatedMlp
from uringinfer.layers.moe import Moe
from uringinfer.layers.norm import RmsNorm
from uringinfer.models import kimi_k3
from uringinfer.models.base import Model
from uringinfer.models.config import ConfigReader
from uringinfer.models.decoder import Attention, Decoder, DecoderLayer, FeedForward
from uringinfer.models.experts import chain_routers, split_or_stacked_experts
from uringinfer.models.kimi_config import KimiConfig, read_kimi

LATENT_EPS = 1e-6
"""Of the norms of the query's and the key/value latent: the released code builds them with its class'
default, whatever rms_norm_eps says. A key `latent_norm_eps` in config.json overrides it."""


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'kimi_linear', which a flat config of Kimi K3 has too."""
    if "attn_res_block_size" in config:
        return kimi_k3.build(config)
    reader = ConfigReader("kimi_linear", config)
    kimi = read_kimi(reader, latent_eps=LATENT_EPS, bounded=False)
    activation = Activation(reader.choice("hidden_act", {"silu": "silu"}))
    reader.finish()
    feed_forwards = [_feed_forward(kimi, layer, activation) for layer in range(kimi.layers)]
    layers = [
        DecoderLayer(
            _norm(kimi, layer, "input_layernorm"),
            _attention(kimi, layer),
            _norm(kimi, layer, "post_attention_layernorm"),
            feed_forward,
            gates,
        )
        for layer, (feed_forward, gates) in enumerate(chain_routers(feed_forwards))
    ]
    return Decoder(
        "kimi_linear",
        kimi.hidden,
        kimi.vocab,
        kimi.max_context,
        tied=False,
        norm_eps=kimi.eps,
        layers=tuple(layers),
    )


def _norm(kimi: KimiConfig, layer: int, part: str) -> RmsNorm:
    name = f"layers.{layer}.{part}"
    return RmsNorm(name, f"model.{name}", kimi.hidden, kimi.eps)


def _attention(kimi: KimiConfig, layer: int) -> Attention:
    name = f"layers.{layer}.self_attn"
    if layer in kimi.full_layers:
        return kimi.latent_attention(name, f"model.{name}", output_gate=False)
    return kimi.delta_attention(name, f"model.{name}", full_rank_gate=False)


def _feed_forward(kimi: KimiConfig, layer: int, activation: Activation) -> FeedForward:
    name = f"layers.{layer}.mlp"
    if layer < kimi.dense_layers:
        return GatedMlp(name, f"model.{name}", kimi.hidden, kimi.dense_inner, activation)
    name = f"layers.{layer}.block_sparse_moe"
    source = f"model.{name}"
    gate = kimi.router_gate(name)
    experts = split_or_stacked_experts(
        layer, kimi.experts, f"{source}.experts", kimi.hidden, kimi.expert_inner, names=("w1", "w3", "w2")
    )
    shared = kimi.shared_experts * kimi.expert_inner
    beside = f"{name}.shared_experts"
    return Moe(
        kimi.hidden,
        kimi.expert_inner,
        experts,
        gate,
        activation=activation,
        shared=GatedMlp(beside, f"model.{beside}", kimi.hidden, shared, activation) if shared else None,
    )
