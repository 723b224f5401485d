"""DeepSeek V2 and V3, and those that kept V3's architecture: Kimi K2, GLM-4.7-Flash (glm4_moe_lite).

Latent attention, some dense layers first, then experts with a shared network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from uringinfer.layers.latent_attention import LatentAttention
from uringinfer.layers.rotary import yarn_magnitude
from uringinfer.models.base import Model
from uringinfer.models.common import Common, read_common
from uringinfer.models.config import ConfigReader
from uringinfer.models.decoder import FeedForward
from uringinfer.models.deepseek_experts import (
    read_feed_forwards,
    read_softmax_feed_forwards,
    skipped_layers,
)
from uringinfer.models.rope_config import read_rotary, read_scaling

_LATENT_EPS = 1e-6
"""Of the norms inside attention, whatever rms_norm_eps says."""


def build_deepseek_v2(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'deepseek_v2'."""
    reader = ConfigReader("deepseek_v2", config)
    return _build(reader, read_softmax_feed_forwards, interleaved=True)


def build_deepseek_v3(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'deepseek_v3'."""
    reader = ConfigReader("deepseek_v3", config)
    return _build(reader, read_feed_forwards, interleaved=reader.flag("rope_interleave", True))


def build_kimi_k2(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'kimi_k2'."""
    reader = ConfigReader("kimi_k2", config)
    return _build(reader, read_feed_forwards, interleaved=reader.flag("rope_interleave", True))


def build_glm4_moe_lite(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'glm4_moe_lite'."""
    reader = ConfigReader("glm4_moe_lite", config)
    return _build(reader, read_feed_forwards, interleaved=reader.flag("rope_interleave", True))


def _build(
    reader: ConfigReader,
    read_parts: Callable[[ConfigReader, Common], list[FeedForward]],
    *,
    interleaved: bool,
) -> Model:
    rope_dim = reader.integer("qk_rope_head_dim")
    common = read_common(reader, head_dim=rope_dim)
    attention = _read_attention(reader, common, rope_dim, interleaved)
    feed_forwards = read_parts(reader, common)
    ignored = skipped_layers(reader, common.layers)
    reader.finish()

    def layer_attention(layer: int) -> LatentAttention:
        name = f"layers.{layer}.self_attn"
        return replace(attention, name=name, source=f"{common.source_prefix}model.{name}")

    parts = ((layer_attention(layer), part) for layer, part in enumerate(feed_forwards))
    return common.decoder(parts, ignored=ignored)


def _read_attention(
    reader: ConfigReader, common: Common, rope_dim: int, interleaved: bool
) -> LatentAttention:
    """The attention of a layer yet without a name."""
    nope_dim = reader.integer("qk_nope_head_dim")
    total = nope_dim + rope_dim
    if reader.get("qk_head_dim") not in (None, total):
        raise reader.refuse("qk_head_dim", f"qk_nope_head_dim + qk_rope_head_dim, {total}")
    q_rank = reader.integer("q_lora_rank", 0)
    return LatentAttention(
        name="",
        source="",
        hidden=common.hidden,
        heads=common.heads,
        q_rank=q_rank or None,
        kv_rank=reader.integer("kv_lora_rank"),
        nope_dim=nope_dim,
        rope_dim=rope_dim,
        value_dim=reader.integer("v_head_dim"),
        latent_eps=_LATENT_EPS,
        scale=total**-0.5 * _yarn_sharpness(reader, common),
        rotary=read_rotary(reader, rope_dim, common.max_context, interleaved=interleaved),
        is_split=reader.flag("kv_b_proj_split"),
    )


def _yarn_sharpness(reader: ConfigReader, common: Common) -> float:
    """What YaRN with `mscale_all_dim` multiplies the attention scale by."""
    scaling = read_scaling(reader)
    weight = scaling.number("mscale_all_dim", 0.0)
    if scaling.get("rope_type") != "yarn" or not weight:
        return 1.0
    return yarn_magnitude(scaling.number("factor"), weight) ** 2
