"""Kimi K3: delta and latent attention, experts in a latent space, and attention over blocks of layers in
place of one residual stream.

A layer does not read the running sum alone: for each token it attends over what earlier blocks of
`attn_res_block_size` layers began with, and over the sum, which starts anew in every block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uringinfer.layers.activation import Activation
from uringinfer.layers.attention_residual import AttentionResidual
from uringinfer.layers.latent_space import LatentSpace
from uringinfer.layers.mlp import GatedMlp
from uringinfer.layers.moe import Moe
from uringinfer.layers.norm import RmsNorm
from uringinfer.layers.router_gate import RouterGate
from uringinfer.layers.step import Step
from uringinfer.layers.tensors import ExpertLayer, ExpertPart, ExpertSource, TensorSpec
from uringinfer.layers.weights import Weights
from uringinfer.models.base import Model
from uringinfer.models.config import ConfigReader
from uringinfer.models.decoder import Attention, Decoder, FeedForward, Stream
from uringinfer.models.experts import TOP_K_KEYS, chain_routers
from uringinfer.models.kimi_config import KimiConfig, read_kimi

LATENT_EPS = None
"""Of the norms of the query's and the key/value latent: None is rms_norm_eps, 1e-5 in the release. Public
copies of the released code seem to build these norms with their class' default, 1e-6; a key `latent_norm_eps`
in config.json chooses that."""

VISION_SOURCES = (r"vision_tower\..*", r"mm_projector\..*", r"model\.mm_projector\..*")
"""The vision tower and what leads from it to the language model; text needs neither."""


@dataclass(frozen=True, slots=True)
class BlockLayer:
    """A layer that mixes earlier blocks before each of its halves. `opens`: it opens a block."""

    attention_mixture: AttentionResidual
    attention_norm: RmsNorm
    attention: Attention
    feed_forward_mixture: AttentionResidual
    feed_forward_norm: RmsNorm
    feed_forward: FeedForward
    gates: tuple[RouterGate, ...]
    opens: bool

    def tensors(self) -> tuple[TensorSpec, ...]:
        """In order of execution."""
        specs = [*self.attention_mixture.tensors(), *self.attention_norm.tensors()]
        specs += [*self.attention.tensors(), *self.feed_forward_mixture.tensors()]
        specs += self.feed_forward_norm.tensors()
        specs += [spec for gate in self.gates for spec in gate.tensors()]
        return (*specs, *self.feed_forward.tensors())

    def forward(self, weights: Weights, caches: Sequence[Any], stream: Stream, step: Step) -> None:
        """See `decoder.Layer.forward`."""
        x = self.attention_mixture.forward(weights, [*stream.blocks, stream.hidden])
        x = self.attention.forward(weights, caches, self.attention_norm.forward(weights, x), step)
        if self.opens:
            stream.blocks.append(stream.hidden)
            stream.hidden = x
        else:
            stream.hidden += x
        x = self.feed_forward_mixture.forward(weights, [*stream.blocks, stream.hidden])
        x = self.feed_forward_norm.forward(weights, x)
        for gate in self.gates:
            step.fetch_gate(weights, gate)
        stream.hidden += self.feed_forward.forward(weights, x, step)


@dataclass(frozen=True, slots=True)
class K3Config:
    """What Kimi K3 has beyond `KimiConfig`."""

    kimi: KimiConfig
    block_size: int
    output_gate: bool
    latent_size: int
    latent_norm: bool
    activation: Activation

    def norm(self, name: str) -> RmsNorm:
        return RmsNorm(name, f"model.{name}", self.kimi.hidden, self.kimi.eps)

    def mixture(self, name: str) -> AttentionResidual:
        return AttentionResidual(name, f"model.{name}", self.kimi.hidden, self.kimi.eps)

    def attention(self, layer: int) -> Attention:
        name = f"layers.{layer}.self_attn"
        if layer in self.kimi.full_layers:
            return self.kimi.latent_attention(name, f"model.{name}", output_gate=self.output_gate)
        return self.kimi.delta_attention(name, f"model.{name}", full_rank_gate=True)

    def mlp(self, name: str, inner: int) -> GatedMlp:
        return GatedMlp(name, f"model.{name}", self.kimi.hidden, inner, self.activation)

    def feed_forward(self, layer: int) -> FeedForward:
        """Dense in the first layers, experts in a latent space behind them."""
        kimi = self.kimi
        if layer < kimi.dense_layers:
            return self.mlp(f"layers.{layer}.mlp", kimi.dense_inner)
        name = f"layers.{layer}.block_sparse_moe"
        source = f"model.{name}"
        gate = kimi.router_gate(name)
        shared = kimi.shared_experts * kimi.expert_inner
        return Moe(
            kimi.hidden,
            kimi.expert_inner,
            self._experts(layer, f"{source}.experts"),
            gate,
            activation=self.activation,
            shared=self.mlp(f"{name}.shared_experts", shared) if shared else None,
            latent=LatentSpace(
                name, source, kimi.hidden, self.latent_size, kimi.eps if self.latent_norm else None
            ),
        )

    def _experts(self, layer: int, source: str) -> ExpertLayer:
        """Each matrix in MXFP4 or plain, in the order in which a released file has them: a record holds the
        bytes of one run of the source. In GGUF each is in a stack of its own."""
        wide = (self.kimi.expert_inner, self.latent_size)
        shapes = {"gate": ("w1", wide), "down": ("w2", wide[::-1]), "up": ("w3", wide)}
        parts = []
        for part, (matrix, shape) in shapes.items():
            weight = f"{source}.{{expert}}.{matrix}.weight"
            packed = ExpertSource(f"{weight}_packed", scales=f"{weight}_scale")
            stack = ExpertSource(f"{source}.{matrix}.weight")
            parts.append(ExpertPart(part, shape, (packed, ExpertSource(weight), stack)))
        return ExpertLayer(layer, self.kimi.experts, tuple(parts))


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config with model_type 'kimi_k3': its language model, under `text_config` or flat."""
    nested = config.get("text_config")
    text = nested if isinstance(nested, Mapping) else config
    # Whoever overrides the number of experts per token does it at the top.
    text = {**text, **{key: config[key] for key in TOP_K_KEYS if key in config}}
    k3 = _read(ConfigReader("kimi_k3", text))
    feed_forwards = [k3.feed_forward(layer) for layer in range(k3.kimi.layers)]
    layers = [
        BlockLayer(
            k3.mixture(f"layers.{layer}.self_attention_res"),
            k3.norm(f"layers.{layer}.input_layernorm"),
            k3.attention(layer),
            k3.mixture(f"layers.{layer}.mlp_res"),
            k3.norm(f"layers.{layer}.post_attention_layernorm"),
            feed_forward,
            gates,
            opens=layer % k3.block_size == 0,
        )
        for layer, (feed_forward, gates) in enumerate(chain_routers(feed_forwards))
    ]
    return Decoder(
        "kimi_k3",
        k3.kimi.hidden,
        k3.kimi.vocab,
        k3.kimi.max_context,
        tied=False,
        norm_eps=k3.kimi.eps,
        layers=tuple(layers),
        ignored=VISION_SOURCES,
        optional_prefix="language_model.",
        closing=k3.mixture("output_attn_res"),
        # The blocks, the running sum, a mixture, its normed copy.
        streams=-(-k3.kimi.layers // k3.block_size) + 3,
    )


def _read(reader: ConfigReader) -> K3Config:
    kimi = read_kimi(reader, latent_eps=LATENT_EPS, bounded=True)
    reader.choice("hidden_act", {"situ": "situ"})
    _read_quantization(reader)
    k3 = K3Config(
        kimi,
        block_size=reader.integer("attn_res_block_size"),
        output_gate=reader.required_flag("mla_use_output_gate"),
        latent_size=reader.integer("routed_expert_hidden_size"),
        latent_norm=reader.required_flag("latent_moe_use_norm"),
        activation=Activation(
            "situ", limit=_read_beta(reader, "situ_linear_beta"), alpha=_read_beta(reader, "situ_beta")
        ),
    )
    reader.finish()
    return k3


def _read_beta(reader: ConfigReader, short: str) -> float:
    """Some exports leave out the first word of the key."""
    return reader.number(short if reader.has(short) else f"activation_{short}")


def _read_quantization(reader: ConfigReader) -> None:
    """Nothing is quantised, or the routed experts are, as MXFP4."""
    quantization = reader.table("quantization_config")
    if quantization is not None and quantization.get("format") != "mxfp4-pack-quantized":
        raise reader.refuse("quantization_config", "the format mxfp4-pack-quantized")
