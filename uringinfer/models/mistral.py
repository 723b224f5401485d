"""Mistral: llama with one sliding window for all layers, where one is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.models.base import Model
from uringinfer.models.common import read_common, read_whole_rotary
from uringinfer.models.config import ConfigReader

_DEFAULT_WINDOW = 4096
"""What a config without the key means; newer checkpoints say null for none."""


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'mistral'."""
    reader = ConfigReader("mistral", config)
    common = read_common(reader)
    rotary = read_whole_rotary(reader, common)
    window = reader.integer("sliding_window", 0) if "sliding_window" in config else _DEFAULT_WINDOW
    reader.finish()
    return common.decoder(
        (common.attention(layer, rotary, window=window), common.mlp(layer)) for layer in range(common.layers)
    )
