"""Llama 2 and 3, and the many models that kept its architecture (SmolLM2, TinyLlama, ...)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.models.base import Model
from uringinfer.models.common import read_common, read_whole_rotary
from uringinfer.models.config import ConfigReader


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'llama'."""
    reader = ConfigReader("llama", config)
    common = read_common(reader)
    rotary = read_whole_rotary(reader, common)
    bias = reader.flag("attention_bias")
    mlp_bias = reader.flag("mlp_bias")
    reader.finish()
    return common.decoder(
        (
            common.attention(layer, rotary, qkv_bias=bias, output_bias=bias),
            common.mlp(layer, bias=mlp_bias),
        )
        for layer in range(common.layers)
    )
