"""GLM-4.5 and its relatives: grouped attention with half-rotated heads, sigmoid routing with a correction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.models.base import Model
from uringinfer.models.common import read_common, read_whole_rotary
from uringinfer.models.config import ConfigReader
from uringinfer.models.deepseek_experts import read_feed_forwards, skipped_layers

_PARTIAL = 0.5
"""The rotated part of a head in a config that does not say."""


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'glm4_moe'."""
    reader = ConfigReader("glm4_moe", config)
    common = read_common(reader)
    rotary = read_whole_rotary(reader, common, partial=True, default_partial=_PARTIAL)
    bias = reader.flag("attention_bias")
    query_norm = "head" if reader.flag("use_qk_norm") else "none"
    feed_forwards = read_feed_forwards(reader, common)
    ignored = skipped_layers(reader, common.layers)
    reader.finish()
    return common.decoder(
        (
            (common.attention(layer, rotary, qkv_bias=bias, query_norm=query_norm), part)
            for layer, part in enumerate(feed_forwards)
        ),
        ignored=ignored,
    )
