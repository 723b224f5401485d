"""Qwen3: qwen2 without the biases, and each head's query and key normalised before the rotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.models.base import Model
from uringinfer.models.common import read_common, read_whole_rotary, read_windows
from uringinfer.models.config import ConfigReader

HEAD_DIM = 128
"""What a config without head_dim means."""


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'qwen3'."""
    reader = ConfigReader("qwen3", config)
    common = read_common(reader, head_dim=HEAD_DIM)
    rotary = read_whole_rotary(reader, common)
    windows = read_windows(reader, common.layers)
    bias = reader.flag("attention_bias")
    reader.finish()
    return common.decoder(
        (
            common.attention(
                layer, rotary, qkv_bias=bias, output_bias=bias, query_norm="head", window=window
            ),
            common.mlp(layer),
        )
        for layer, window in enumerate(windows)
    )
