"""gpt-oss: attention sinks, windows in every other layer, biases, clamped SwiGLU experts in MXFP4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uringinfer.layers.activation import Activation
from uringinfer.layers.moe import Moe
from uringinfer.layers.router_gate import RouterGate
from uringinfer.layers.tensors import ExpertLayer, ExpertPart, ExpertSource
from uringinfer.models.base import Model
from uringinfer.models.common import Common, read_common
from uringinfer.models.config import ConfigReader
from uringinfer.models.experts import read_expert_count, read_top_k, softmax_router
from uringinfer.models.rope_config import read_rotary

_HEAD_DIM = 64
_DEFAULT_SCALING = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""What a config without rotary scaling means."""


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'gpt_oss'."""
    if config.get("rope_scaling") is None and config.get("rope_parameters") is None:
        config = {**config, "rope_scaling": _DEFAULT_SCALING}
    reader = ConfigReader("gpt_oss", config)
    common = read_common(reader, head_dim=_HEAD_DIM)
    rotary = read_rotary(reader, common.head_dim, common.max_context, default_theta=150000.0)
    bias = reader.flag("attention_bias", True)
    windows = _windows(reader, common.layers)
    count = read_expert_count(reader)
    top_k = read_top_k(reader, count)
    activation = Activation(
        "swiglu_oai", limit=reader.number("swiglu_limit", 7.0), alpha=reader.number("swiglu_alpha", 1.702)
    )
    reader.get("initial_context_length")  # repeats the scaling's original_max_position_embeddings
    reader.finish()
    return common.decoder(
        (
            common.attention(
                layer, rotary, qkv_bias=bias, output_bias=bias, window=windows[layer], sinks=True
            ),
            _moe(common, layer, count, top_k, activation),
        )
        for layer in range(common.layers)
    )


def _windows(reader: ConfigReader, layers: int) -> list[int]:
    """Each layer's sliding window: by `layer_types`, by default in layers 0, 2, 4, ..."""
    window = reader.integer("sliding_window", 128)
    types = reader.per_layer("layer_types", layers, ("full_attention", "sliding_attention"))
    if types is None:
        return [window if layer % 2 == 0 else 0 for layer in range(layers)]
    return [window if kind == "sliding_attention" else 0 for kind in types]


def _moe(common: Common, layer: int, count: int, top_k: int, activation: Activation) -> Moe:
    name = f"layers.{layer}.mlp"
    source = f"model.{name}"
    router = softmax_router(top_k, renormalize=True)
    return Moe(
        common.hidden,
        common.inner,
        ExpertLayer(layer, count, _parts(f"{source}.experts", common.hidden, common.inner)),
        RouterGate(f"{name}.router", f"{source}.router", count, common.hidden, router, bias=True),
        activation=activation,
    )


def _parts(source: str, hidden: int, inner: int) -> tuple[ExpertPart, ...]:
    """Gate and up are interleaved: gate in the even rows, up in the odd ones. MXFP4 blocks are stored as
    [out, in], plain matrices as [in, out]. GGUF has stacks of each, not interleaved, as [out, in]."""

    def matrix(name: str, stored: str, shape: tuple[int, int], first: int, step: int) -> ExpertPart:
        packed = ExpertSource(
            f"{source}.{stored}_blocks", first=first, step=step, scales=f"{source}.{stored}_scales"
        )
        plain = ExpertSource(f"{source}.{stored}", transposed=True, first=first, step=step)
        return ExpertPart(name, shape, (packed, plain, ExpertSource(f"{source}.{name}_proj.weight")))

    def bias(name: str, stored: str, size: int, first: int, step: int) -> ExpertPart:
        single = ExpertSource(f"{source}.{name.replace('_', '_proj.')}")
        return ExpertPart(
            name, (size,), (ExpertSource(f"{source}.{stored}_bias", first=first, step=step), single)
        )

    return (
        matrix("gate", "gate_up_proj", (inner, hidden), 0, 2),
        matrix("up", "gate_up_proj", (inner, hidden), 1, 2),
        matrix("down", "down_proj", (hidden, inner), 0, 1),
        bias("gate_bias", "gate_up_proj", inner, 0, 2),
        bias("up_bias", "gate_up_proj", inner, 1, 2),
        bias("down_bias", "down_proj", hidden, 0, 1),
    )
