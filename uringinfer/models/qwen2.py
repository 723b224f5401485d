"""Qwen2 and Qwen2.5: llama with biases on queries, keys and values, and sliding windows in upper layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.models.base import Model
from uringinfer.models.common import read_common, read_whole_rotary, read_windows
from uringinfer.models.config import ConfigReader


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'qwen2'."""
    reader = ConfigReader("qwen2", config)
    common = read_common(reader)
    rotary = read_whole_rotary(reader, common)
    windows = read_windows(reader, common.layers)
    reader.finish()
    return common.decoder(
        (common.attention(layer, rotary, qkv_bias=True, window=window), common.mlp(layer))
        for layer, window in enumerate(windows)
    )
