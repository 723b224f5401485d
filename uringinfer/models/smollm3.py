"""SmolLM3: llama with no rotation in every fourth layer, or in those that `no_rope_layers` marks with 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.models.base import Model
from uringinfer.models.common import read_common, read_whole_rotary
from uringinfer.models.config import ConfigReader


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'smollm3'."""
    reader = ConfigReader("smollm3", config)
    common = read_common(reader, tied=True)
    rotary = read_whole_rotary(reader, common, default_theta=2_000_000.0)
    rotated = _rotated_layers(reader, common.layers)
    windows = _windows(reader, rotated)
    bias = reader.flag("attention_bias")
    mlp_bias = reader.flag("mlp_bias")
    reader.finish()
    return common.decoder(
        (
            common.attention(
                layer, rotary if turns else None, qkv_bias=bias, output_bias=bias, window=window
            ),
            common.mlp(layer, bias=mlp_bias),
        )
        for layer, (turns, window) in enumerate(zip(rotated, windows, strict=True))
    )


def _rotated_layers(reader: ConfigReader, layers: int) -> list[bool]:
    """Whether each layer rotates: by the list if there is one, else by the interval."""
    interval = reader.integer("no_rope_layer_interval", 4)
    marks = reader.per_layer("no_rope_layers", layers, (0, 1))
    if marks is not None:
        return [bool(mark) for mark in marks]
    return [(layer + 1) % interval != 0 for layer in range(layers)]


def _windows(reader: ConfigReader, rotated: list[bool]) -> list[int]:
    """A sliding window, if switched on, holds in the layers that `layer_types` names, by default in those
    without rotation."""
    window = reader.integer("sliding_window", 0, minimum=0)
    types = reader.per_layer("layer_types", len(rotated), ("full_attention", "sliding_attention"))
    reader.get("max_window_layers")  # checkpoints carry it; the architecture goes by layer_types
    if not reader.flag("use_sliding_window"):
        window = 0
    if types is None:
        return [0 if turns else window for turns in rotated]
    return [window if kind == "sliding_attention" else 0 for kind in types]
