"""What the configs of decoder families have in common, read once, and the layers built from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from uringinfer.layers.activation import Activation
from uringinfer.layers.attention import GroupedAttention
from uringinfer.layers.mlp import GatedMlp
from uringinfer.layers.norm import RmsNorm
from uringinfer.layers.rotary import Rotary
from uringinfer.models.config import ConfigReader
from uringinfer.models.decoder import Attention, Decoder, DecoderLayer, FeedForward
from uringinfer.models.experts import chain_routers
from uringinfer.models.rope_config import read_rotary

ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
"""`hidden_act` -> the kind that `kernels.gated` knows."""


@dataclass(frozen=True, slots=True)
class Common:
    """Sizes that every decoder has. `source_prefix` stands before 'model.' in the checkpoint's names."""

    family: str
    vocab: int
    hidden: int
    layers: int
    heads: int
    groups: int
    head_dim: int
    inner: int
    eps: float
    tied: bool
    max_context: int
    activation: str
    source_prefix: str = ""

    def norm(self, layer: int, part: str) -> RmsNorm:
        name = f"layers.{layer}.{part}"
        return RmsNorm(name, f"{self.source_prefix}model.{name}", self.hidden, self.eps)

    def attention(self, layer: int, rotary: Rotary | None, **options: Any) -> GroupedAttention:
        """Grouped attention of one layer; `options` are the fields of `GroupedAttention`."""
        name = f"layers.{layer}.self_attn"
        defaults: dict[str, Any] = {"scale": self.head_dim**-0.5, "norm_eps": self.eps}
        return GroupedAttention(
            name,
            f"{self.source_prefix}model.{name}",
            self.hidden,
            self.heads,
            self.groups,
            self.head_dim,
            rotary=rotary,
            **(defaults | options),
        )

    def mlp(self, layer: int, *, part: str = "mlp", inner: int | None = None, bias: bool = False) -> GatedMlp:
        """A dense feed-forward network of one layer, `inner` channels wide."""
        name = f"layers.{layer}.{part}"
        source = f"{self.source_prefix}model.{name}"
        return GatedMlp(name, source, self.hidden, inner or self.inner, Activation(self.activation), bias)

    def decoder(
        self,
        parts: Iterable[tuple[Attention, FeedForward]],
        *,
        residual_scale: float = 1.0,
        **options: Any,
    ) -> Decoder:
        """The model of these attention and feed-forward parts; `options` are the fields of `Decoder`."""
        attentions, feed_forwards = zip(*parts, strict=True)
        chained = chain_routers(feed_forwards)
        layers = tuple(
            DecoderLayer(
                self.norm(number, "input_layernorm"),
                attention,
                self.norm(number, "post_attention_layernorm"),
                feed_forward,
                gates,
                residual_scale,
            )
            for number, (attention, (feed_forward, gates)) in enumerate(zip(attentions, chained, strict=True))
        )
        return Decoder(
            self.family,
            self.hidden,
            self.vocab,
            self.max_context,
            self.tied,
            self.eps,
            layers,
            source_prefix=self.source_prefix,
            **options,
        )


def read_common(reader: ConfigReader, *, tied: bool = False, head_dim: int | None = None) -> Common:
    """Reads the shared keys. `tied` and `head_dim` are the family's defaults for a missing key."""
    hidden = reader.integer("hidden_size")
    layers = reader.integer("num_hidden_layers")
    heads = reader.integer("num_attention_heads")
    groups = reader.integer("num_key_value_heads", heads)
    if heads % groups:
        raise reader.refuse("num_key_value_heads", f"a divisor of num_attention_heads, {heads}")
    if reader.get("head_dim") is None and head_dim is None and hidden % heads:
        raise reader.refuse("hidden_size", f"a multiple of num_attention_heads, {heads}, or head_dim")
    return Common(
        family=reader.family,
        vocab=reader.integer("vocab_size"),
        hidden=hidden,
        layers=layers,
        heads=heads,
        groups=groups,
        head_dim=reader.integer("head_dim", head_dim or hidden // heads),
        inner=reader.integer("intermediate_size"),
        eps=reader.number("rms_norm_eps", 1e-6),
        tied=reader.flag("tie_word_embeddings", tied),
        max_context=reader.integer("max_position_embeddings"),
        activation=reader.choice("hidden_act", ACTIVATIONS, "silu"),
    )


def read_whole_rotary(reader: ConfigReader, common: Common, **options: Any) -> Rotary:
    """The rotary embedding over the attention heads; `options` are those of `read_rotary`."""
    return read_rotary(reader, common.head_dim, common.max_context, **options)


def read_windows(reader: ConfigReader, layers: int) -> list[int]:
    """Each layer's sliding window, 0 for none, by `use_sliding_window`, `sliding_window`, and `layer_types`
    or `max_window_layers`, as qwen2 and its relatives use them."""
    window = reader.integer("sliding_window", 0, minimum=0)
    first = reader.integer("max_window_layers", 28, minimum=0)
    types = reader.per_layer("layer_types", layers, ("full_attention", "sliding_attention"))
    if not reader.flag("use_sliding_window"):
        window = 0
    if types is None:
        return [window if number >= first else 0 for number in range(layers)]
    if "sliding_attention" in types and not window:
        raise reader.refuse("layer_types", "a sliding_window for its sliding_attention")
    return [window if kind == "sliding_attention" else 0 for kind in types]
