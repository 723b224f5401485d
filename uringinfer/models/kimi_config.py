"""The config that Kimi-Linear and Kimi K3 share, and the layers that both build from it.

Every key that says something about the architecture is required: the defaults of one model would be plausible
for another, and a wrong layer map still gives fluent text.
"""

from __future__ import annotations

from dataclasses import dataclass

from uringinfer.layers.delta_attention import DeltaAttention
from uringinfer.layers.latent_attention import LatentAttention
from uringinfer.layers.router import Router
from uringinfer.layers.router_gate import RouterGate
from uringinfer.models.config import ConfigReader
from uringinfer.models.experts import read_expert_count, read_top_k


@dataclass(frozen=True, slots=True)
class KimiConfig:
    """Sizes and switches. `full_layers` are the layers with latent attention, counted from zero.
    `is_split` is `LatentAttention.is_split`."""

    vocab: int
    hidden: int
    layers: int
    max_context: int
    eps: float
    latent_eps: float
    dense_inner: int
    dense_layers: int
    expert_inner: int
    experts: int
    shared_experts: int
    router: Router
    heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    full_layers: frozenset[int]
    delta_heads: int
    delta_dim: int
    taps: int
    lower_bound: float | None
    is_split: bool

    def latent_attention(self, name: str, source: str, *, output_gate: bool) -> LatentAttention:
        """Latent attention without rotation."""
        return LatentAttention(
            name,
            source,
            self.hidden,
            self.heads,
            self.q_rank,
            self.kv_rank,
            self.nope_dim,
            self.rope_dim,
            self.value_dim,
            self.latent_eps,
            scale=(self.nope_dim + self.rope_dim) ** -0.5,
            output_gate=output_gate,
            is_split=self.is_split,
        )

    def router_gate(self, moe: str) -> RouterGate:
        """The gate of the mixture of experts `moe`."""
        source = f"model.{moe}.gate"
        correction = f"{source}.e_score_correction_bias"
        return RouterGate(
            f"{moe}.gate", source, self.experts, self.hidden, self.router, correction=correction
        )

    def delta_attention(self, name: str, source: str, *, full_rank_gate: bool) -> DeltaAttention:
        return DeltaAttention(
            name,
            source,
            self.hidden,
            self.delta_heads,
            self.delta_dim,
            self.taps,
            self.eps,
            self.lower_bound,
            full_rank_gate,
        )


def read_kimi(reader: ConfigReader, *, latent_eps: float | None, bounded: bool) -> KimiConfig:
    """Reads what both families have. `latent_eps` is the family's eps for the norms of the query's and the
    key/value latent, None for rms_norm_eps; a key `latent_norm_eps` in the config overrides it. `bounded`:
    the decay has a lower bound, which the config must give."""
    layers = reader.integer("num_hidden_layers")
    _read_what_is_fixed(reader)
    linear = reader.table("linear_attn_config")
    if linear is None:
        raise reader.refuse("linear_attn_config", "the sizes of its linear attention")
    mixer = ConfigReader(f"{reader.family}.linear_attn_config", linear)
    eps = reader.number("rms_norm_eps")
    heads = reader.integer("num_attention_heads")
    if reader.integer("num_key_value_heads") != heads:
        raise reader.refuse(
            "num_key_value_heads", f"num_attention_heads, {heads}: latent attention shares none"
        )
    if not reader.has("q_lora_rank"):
        raise reader.refuse("q_lora_rank", "a rank, or null")
    full = _read_layer_map(mixer, layers)
    config = KimiConfig(
        vocab=reader.integer("vocab_size"),
        hidden=reader.integer("hidden_size"),
        layers=layers,
        max_context=_read_context(reader),
        eps=eps,
        latent_eps=reader.number("latent_norm_eps", latent_eps or eps),
        dense_inner=reader.integer("intermediate_size"),
        dense_layers=_read_dense_layers(reader, layers),
        expert_inner=reader.integer("moe_intermediate_size"),
        experts=read_expert_count(reader),
        shared_experts=reader.integer("num_shared_experts", minimum=0),
        router=_read_router(reader),
        heads=heads,
        q_rank=None if reader.get("q_lora_rank") is None else reader.integer("q_lora_rank"),
        kv_rank=reader.integer("kv_lora_rank"),
        nope_dim=reader.integer("qk_nope_head_dim"),
        rope_dim=reader.integer("qk_rope_head_dim", minimum=0),
        value_dim=reader.integer("v_head_dim"),
        full_layers=full,
        delta_heads=mixer.integer("num_heads"),
        delta_dim=mixer.integer("head_dim"),
        taps=mixer.integer("short_conv_kernel_size", minimum=2),
        lower_bound=_read_lower_bound(mixer) if bounded else None,
        is_split=reader.flag("kv_b_proj_split"),
    )
    # A missing key is no guess: a gate of low rank has tensors of other names.
    if bounded and mixer.get("use_full_rank_gate") not in (None, True):
        raise mixer.refuse("use_full_rank_gate", "true")
    mixer.finish()
    return config


def _read_what_is_fixed(reader: ConfigReader) -> None:
    """Keys of which one value is known."""
    if reader.get("mla_use_nope") is not True:
        raise reader.refuse("mla_use_nope", "true: its latent attention is not rotated")
    if reader.get("tie_word_embeddings") is not False:
        raise reader.refuse("tie_word_embeddings", "false")
    if reader.integer("moe_layer_freq") != 1:
        raise reader.refuse("moe_layer_freq", "1")
    reader.choice("moe_router_activation_func", {"sigmoid": "sigmoid"})
    if reader.get("num_nextn_predict_layers") not in (None, 0):
        raise reader.refuse("num_nextn_predict_layers", "0")
    # Latent attention is not rotated, and its heads have the sizes of the qk_ and v_ keys.
    for key in ("rope_theta", "rope_scaling", "rope_parameters", "head_dim", "qk_head_dim"):
        reader.get(key)


def _read_layer_map(mixer: ConfigReader, layers: int) -> frozenset[int]:
    """The layers with full attention, from zero; the config counts from one."""
    full, delta = mixer.get("full_attn_layers"), mixer.get("kda_layers")
    everything = list(range(1, layers + 1))
    for key, value in (("full_attn_layers", full), ("kda_layers", delta)):
        if not isinstance(value, list) or any(type(number) is not int for number in value):
            raise mixer.refuse(key, "a list of layers, counted from one")
    if sorted(full + delta) != everything:
        raise mixer.refuse("full_attn_layers", f"each layer from 1 to {layers} once here or in kda_layers")
    return frozenset(number - 1 for number in full)


def _read_lower_bound(mixer: ConfigReader) -> float:
    value = mixer.get("gate_lower_bound")
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e3 < value < 0:
        raise mixer.refuse("gate_lower_bound", "a negative number")
    return float(value)


def _read_dense_layers(reader: ConfigReader, layers: int) -> int:
    """Leading layers without experts."""
    count = reader.integer("first_k_dense_replace", minimum=0)
    if count > layers:
        raise reader.refuse("first_k_dense_replace", f"at most num_hidden_layers, {layers}")
    return count


def _read_context(reader: ConfigReader) -> int:
    key = "model_max_length" if reader.has("model_max_length") else "max_position_embeddings"
    return reader.integer(key)


def _read_router(reader: ConfigReader) -> Router:
    experts = read_expert_count(reader)
    top_k = read_top_k(reader, experts)
    groups, kept = reader.integer("num_expert_group"), reader.integer("topk_group")
    if experts % groups or kept > groups:
        raise reader.refuse("num_expert_group", f"a divisor of num_experts, {experts}, of topk_group or more")
    if groups > 1 and experts // groups < 2:
        raise reader.refuse("num_expert_group", "groups of two experts or more")
    if top_k > kept * (experts // groups):
        raise reader.refuse("num_experts_per_token", f"at most {kept * (experts // groups)}")
    reader.choice("topk_method", {"noaux_tc": "noaux_tc"}, "noaux_tc")
    reader.get("use_grouped_topk")
    return Router(
        top_k,
        "sigmoid",
        # As in the released code, a lone expert keeps its own score.
        renormalize=reader.required_flag("moe_renormalize") and top_k > 1,
        scaling=reader.number("routed_scaling_factor"),
        num_groups=groups,
        top_groups=kept,
    )
