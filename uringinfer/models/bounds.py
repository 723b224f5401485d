"""The bounds of every number that a config may hold, in one table.

A config is hostile input, and its numbers become sizes of arrays and lengths of loops. So each is bounded
before anything is built from it, several times above what any published model has and far below what a
machine would choke on. What the numbers mean together (divisors, shapes) is for the families to check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LARGEST = 1e12

WIDTH = (0, 1 << 20)
"""Channels of a vector."""
COUNT = (0, 1 << 14)
"""Heads, experts: things that a layer has many of."""
DEPTH = (0, 1_000)
"""Layers."""
POSITIONS = (0, 1 << 31)
"""Tokens of a context."""
FACTOR = (0.0, _LARGEST)

BOUNDS: Mapping[str, tuple[float, float]] = {
    "activation_situ_beta": FACTOR,
    "activation_situ_linear_beta": FACTOR,
    "attention_factor": FACTOR,
    "attention_multiplier": FACTOR,
    "attn_res_block_size": DEPTH,
    "beta_fast": FACTOR,
    "beta_slow": FACTOR,
    "clip_qkv": FACTOR,
    "decoder_sparse_step": DEPTH,
    "embedding_multiplier": FACTOR,
    "experts_per_token": COUNT,
    "factor": FACTOR,
    "first_k_dense_replace": DEPTH,
    "gate_lower_bound": (-1e3, 0.0),
    "head_dim": (0, 1 << 14),
    "hidden_size": WIDTH,
    "high_freq_factor": FACTOR,
    "initial_context_length": POSITIONS,
    "intermediate_size": WIDTH,
    "kv_lora_rank": WIDTH,
    "latent_norm_eps": (0.0, 1.0),
    "logits_scaling": FACTOR,
    "low_freq_factor": FACTOR,
    "max_position_embeddings": POSITIONS,
    "max_window_layers": POSITIONS,
    "model_max_length": POSITIONS,
    "moe_intermediate_size": WIDTH,
    "moe_layer_freq": DEPTH,
    "mscale": FACTOR,
    "mscale_all_dim": FACTOR,
    "n_group": COUNT,
    "n_routed_experts": COUNT,
    "n_shared_experts": (0, 256),
    "no_rope_layer_interval": DEPTH,
    "num_attention_heads": COUNT,
    "num_expert_group": COUNT,
    "num_experts": COUNT,
    "num_experts_per_tok": COUNT,
    "num_experts_per_token": COUNT,
    "num_heads": COUNT,
    "num_hidden_layers": DEPTH,
    "num_key_value_heads": COUNT,
    "num_local_experts": COUNT,
    "num_mtp_layers": DEPTH,
    "num_nextn_predict_layers": DEPTH,
    "num_shared_experts": (0, 256),
    "original_max_position_embeddings": POSITIONS,
    "partial_rotary_factor": (0.0, 1.0),
    "q_lora_rank": WIDTH,
    "qk_head_dim": (0, 1 << 14),
    "qk_nope_head_dim": (0, 1 << 14),
    "qk_rope_head_dim": (0, 1 << 14),
    "residual_multiplier": FACTOR,
    "rms_norm_eps": (0.0, 1.0),
    "rope_theta": FACTOR,
    "routed_expert_hidden_size": WIDTH,
    "routed_scaling_factor": FACTOR,
    "shared_expert_intermediate_size": WIDTH,
    "short_conv_kernel_size": (0, 256),
    "situ_beta": FACTOR,
    "situ_linear_beta": FACTOR,
    "sliding_window": POSITIONS,
    "swiglu_alpha": FACTOR,
    "swiglu_limit": FACTOR,
    "topk_group": COUNT,
    "v_head_dim": (0, 1 << 14),
    "vocab_size": (0, 1 << 24),
}
"""Lowest and highest value of each numeric key; a family may ask for more than the lowest."""

MAX_EXPERTS = 1 << 18
"""Experts of all layers together; Kimi K3 has 82,432."""

_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")


def out_of_bounds(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first key of `config` whose number is out of its bounds, and what it would have to be; None if all
    are inside. What is no number, or has no bounds, passes."""
    for key, value in config.items():
        bounds = BOUNDS.get(key)
        if bounds is None or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not bounds[0] <= value <= bounds[1]:
            return key, f"a number from {bounds[0]:g} to {bounds[1]:g}"
    layers = config.get("num_hidden_layers")
    for key in _EXPERT_KEYS:
        count = config.get(key)
        if isinstance(layers, int) and isinstance(count, int) and layers * count > MAX_EXPERTS:
            return key, f"at most {MAX_EXPERTS // max(layers, 1)} experts in each of {layers} layers"
    return None
