"""What the config of each architecture says beyond what all say, out of GGUF's keys and the tensors' shapes.

A family returns its part of the config, which goes over the shared one, and how many channels of a head are
rotated. What GGUF has no key for is what its architecture means there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uringinfer.errors import IntegrityError
from uringinfer.packing.gguf_metadata import Metadata
from uringinfer.packing.gguf_rope import rotated_channels

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of the checkpoint's tensors, by Hugging Face names."""
Family = Callable[[Metadata, Mapping[str, Any], Shapes], tuple[dict[str, Any], int]]

_SOFTMAX, _SIGMOID = 1, 2
"""Values of expert_gating_func."""


def _grouped(
    metadata: Metadata, config: Mapping[str, Any], shapes: Shapes, model_type: str, *, partial: bool = False
) -> tuple[dict[str, Any], int]:
    """Grouped attention, and whether queries have biases."""
    heads = config["num_attention_heads"]
    head_dim = metadata.integer(".attention.key_length", config["hidden_size"] // heads)
    if metadata.integer(".attention.value_length", head_dim) != head_dim:
        raise metadata.refuse(".attention.value_length", f"values as long as keys, {head_dim}")
    own = {
        "model_type": model_type,
        "num_key_value_heads": metadata.integer(".attention.head_count_kv", heads),
        "head_dim": head_dim,
    }
    return own, rotated_channels(metadata, head_dim, partial=partial)


def _biased(shapes: Shapes) -> dict[str, bool]:
    return {"attention_bias": "model.layers.0.self_attn.q_proj.bias" in shapes}


def _experts(metadata: Metadata, width: int | None, gating: int = _SOFTMAX) -> dict[str, Any]:
    """How many experts there are, how many a token takes, and their channels, `width` where no key says it.
    Raises UnsupportedModelError for another gating function than `gating`."""
    if metadata.integer(".expert_gating_func", gating) != gating:
        raise metadata.refuse(".expert_gating_func", f"{gating}")
    return {
        "num_experts": metadata.integer(".expert_count"),
        "num_experts_per_tok": metadata.integer(".expert_used_count"),
        "moe_intermediate_size": metadata.integer(".expert_feed_forward_length", width),
    }


def _width(shapes: Shapes) -> int | None:
    """Channels of an expert, by the first stack of gates."""
    stacks = (shape for name, shape in shapes.items() if name.endswith((".gate_proj.weight", ".w1.weight")))
    return next((shape[1] for shape in stacks if len(shape) == 3), None)


def _only_experts(metadata: Metadata, config: Mapping[str, Any]) -> dict[str, Any]:
    """Experts in every layer, whose channels are the config's intermediate_size."""
    experts = _experts(metadata, config["intermediate_size"])
    return {
        "intermediate_size": experts["moe_intermediate_size"],
        "num_local_experts": experts["num_experts"],
        "num_experts_per_tok": experts["num_experts_per_tok"],
    }


def _check_weights_norm(metadata: Metadata, wanted: bool) -> None:
    """Whether the chosen experts' shares are made to add up to 1 is no choice in some architectures."""
    if metadata.flag(".expert_weights_norm", wanted) != wanted:
        raise metadata.refuse(".expert_weights_norm", str(wanted).lower())


def _windowed(metadata: Metadata, config: Mapping[str, Any]) -> None:
    """A sliding window as long as the context is none. Raises UnsupportedModelError for another."""
    window = metadata.integer(".attention.sliding_window", 0, minimum=0)
    if 0 < window < config["max_position_embeddings"]:
        raise metadata.refuse(".attention.sliding_window", "no window, or one as long as the context")


def _llama(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    _windowed(metadata, config)
    if not metadata.integer(".expert_count", 0, minimum=0):
        own, rotated = _grouped(metadata, config, shapes, "llama")
        return own | _biased(shapes), rotated
    own, rotated = _grouped(metadata, config, shapes, "mixtral")
    _check_weights_norm(metadata, True)
    return own | _only_experts(metadata, config), rotated


def _dense(model_type: str, *, biased: bool) -> Family:
    def family(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
        _windowed(metadata, config)
        own, rotated = _grouped(metadata, config, shapes, model_type)
        return own | (_biased(shapes) if biased else {}), rotated

    return family


def _dense_layers(config: Mapping[str, Any], shapes: Shapes) -> dict[str, list[int]]:
    """The layers without a router."""
    layers = range(config["num_hidden_layers"])
    dense = [layer for layer in layers if f"model.layers.{layer}.mlp.gate.weight" not in shapes]
    return {"mlp_only_layers": dense} if dense else {}


def _qwen2_moe(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    own, rotated = _grouped(metadata, config, shapes, "qwen2_moe")
    gates = (shape for name, shape in shapes.items() if name.endswith("shared_expert.gate_proj.weight"))
    shared = next(gates, None)
    if shared is None:
        raise IntegrityError(f"{metadata.path}: holds no ffn_gate_shexp.weight")
    own["shared_expert_intermediate_size"] = metadata.integer(".expert_shared_feed_forward_length", shared[0])
    own["norm_topk_prob"] = metadata.flag(".expert_weights_norm", False)
    return own | _dense_layers(config, shapes) | _experts(metadata, _width(shapes)), rotated


def _qwen3_moe(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    own, rotated = _grouped(metadata, config, shapes, "qwen3_moe")
    own["norm_topk_prob"] = metadata.flag(".expert_weights_norm", True)
    own |= _biased(shapes) | _dense_layers(config, shapes)
    return own | _experts(metadata, _width(shapes)), rotated


def _olmoe(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    own, rotated = _grouped(metadata, config, shapes, "olmoe")
    experts = _only_experts(metadata, config)
    experts["num_experts"] = experts.pop("num_local_experts")
    clip = metadata.real(".attention.clamp_kqv", 0.0)
    if clip:
        own["clip_qkv"] = clip
    norm = metadata.flag(".expert_weights_norm", False)
    return own | experts | {"norm_topk_prob": norm}, rotated


def _granite_moe(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    own, rotated = _grouped(metadata, config, shapes, "granitemoe")
    factors = {
        "attention_multiplier": metadata.real(".attention.scale", own["head_dim"] ** -0.5),
        "embedding_multiplier": metadata.real(".embedding_scale", 1.0),
        "residual_multiplier": metadata.real(".residual_scale", 1.0),
        "logits_scaling": metadata.real(".logit_scale", 1.0),
    }
    _check_weights_norm(metadata, True)
    return own | _biased(shapes) | factors | _only_experts(metadata, config), rotated


def _gpt_oss(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    own, rotated = _grouped(metadata, config, shapes, "gpt_oss")
    own["sliding_window"] = metadata.integer(".attention.sliding_window")
    if metadata.has(".attention.sliding_window_pattern") and metadata.integers(
        ".attention.sliding_window_pattern"
    ) != [2]:
        raise metadata.refuse(".attention.sliding_window_pattern", "a window in every second layer, from 0")
    return own | _only_experts(metadata, config), rotated


def _glm4_moe(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    own, rotated = _grouped(metadata, config, shapes, "glm4_moe", partial=True)
    own["partial_rotary_factor"] = rotated / own["head_dim"]
    own["use_qk_norm"] = "model.layers.0.self_attn.q_norm.weight" in shapes
    return own | _biased(shapes) | _grouped_experts(metadata, shapes, _SIGMOID), rotated


def _grouped_experts(metadata: Metadata, shapes: Shapes, gating: int) -> dict[str, Any]:
    """DeepSeek's experts: dense layers first, groups, a shared network."""
    experts = _experts(metadata, _width(shapes), gating)
    groups = metadata.integer(".expert_group_count", 1)
    own = {
        "n_routed_experts": experts["num_experts"],
        "num_experts_per_tok": experts["num_experts_per_tok"],
        "moe_intermediate_size": experts["moe_intermediate_size"],
        "n_shared_experts": metadata.integer(".expert_shared_count", 0, minimum=0),
        "first_k_dense_replace": metadata.integer(".leading_dense_block_count", 0, minimum=0),
        "n_group": groups,
        "topk_group": metadata.integer(".expert_group_used_count", groups),
        "routed_scaling_factor": metadata.real(".expert_weights_scale", 0.0) or 1.0,
        "norm_topk_prob": metadata.flag(".expert_weights_norm", False),
    }
    if gating == _SOFTMAX:
        own["scoring_func"] = "softmax"
        own["topk_method"] = "greedy" if groups == 1 else "group_limited_greedy"
    return own


def _latent(metadata: Metadata, shapes: Shapes, layer: int) -> dict[str, Any]:
    """Latent attention, as `layer` has it: files of before April 2025 give the sizes of heads under other
    keys, and its expanding matrix whole."""
    rope = metadata.integer(".rope.dimension_count")
    rank = metadata.integer(".attention.kv_lora_rank")
    is_split = f"model.layers.{layer}.self_attn.k_b_proj.weight" in shapes
    # beside split halves, key_length and value_length are those of the one head that all share
    whole = [0 if is_split else metadata.integer(f".attention.{kind}_length", 0) for kind in ("key", "value")]
    key = metadata.integer(".attention.key_length_mla", whole[0] or None)
    value = metadata.integer(".attention.value_length_mla", whole[1] or None)
    for kind in ("key", "value"):
        metadata.has(f".attention.{kind}_length")
    if key <= rope:
        raise metadata.refuse(".rope.dimension_count", f"less than a head's {key} channels")
    own: dict[str, Any] = {
        "qk_nope_head_dim": key - rope,
        "qk_rope_head_dim": rope,
        "v_head_dim": value,
        "kv_lora_rank": rank,
        "kv_b_proj_split": is_split,
    }
    if metadata.has(".attention.q_lora_rank"):
        own["q_lora_rank"] = metadata.integer(".attention.q_lora_rank")
    return own


def _deepseek2(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    heads = config["num_attention_heads"]
    if metadata.integer(".attention.head_count_kv", heads) not in (1, heads):
        raise metadata.refuse(".attention.head_count_kv", f"1 or {heads}: latent attention shares none")
    corrected = any(name.endswith(".e_score_correction_bias") for name in shapes)
    gating = metadata.integer(".expert_gating_func", _SIGMOID if corrected else _SOFTMAX, minimum=0)
    own = _latent(metadata, shapes, 0) | {
        "model_type": "deepseek_v3" if gating == _SIGMOID else "deepseek_v2",
        "num_key_value_heads": heads,
    }
    experts = _grouped_experts(metadata, shapes, _SIGMOID if gating == _SIGMOID else _SOFTMAX)
    return own | experts, own["qk_rope_head_dim"]


def _kimi(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    """What Kimi-Linear and Kimi K3 share: which layers have latent attention, and no rotation anywhere."""
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    groups = metadata.integers(".attention.head_count_kv")
    if len(groups) != layers or not any(groups) or all(groups):
        raise metadata.refuse(".attention.head_count_kv", f"a number for each of {layers} layers")
    full = [number for number, count in enumerate(groups) if count]
    delta = [number for number, count in enumerate(groups) if not count]
    rates = shapes.get(f"model.layers.{delta[0]}.self_attn.A_log", ())
    experts = _grouped_experts(metadata, shapes, _SIGMOID)
    latent = _latent(metadata, shapes, full[0])
    own = latent | {
        "q_lora_rank": latent.get("q_lora_rank"),
        "num_key_value_heads": heads,
        "mla_use_nope": True,
        "linear_attn_config": {
            "num_heads": rates[0] if rates else 0,
            "head_dim": metadata.integer(".kda.head_dim"),
            "short_conv_kernel_size": metadata.integer(".ssm.conv_kernel"),
            "full_attn_layers": [number + 1 for number in full],
            "kda_layers": [number + 1 for number in delta],
        },
        "num_experts": experts["n_routed_experts"],
        "num_experts_per_token": experts["num_experts_per_tok"],
        "moe_intermediate_size": experts["moe_intermediate_size"],
        "num_shared_experts": experts["n_shared_experts"],
        "first_k_dense_replace": experts["first_k_dense_replace"],
        "num_expert_group": experts["n_group"],
        "topk_group": experts["topk_group"],
        "routed_scaling_factor": experts["routed_scaling_factor"],
        "moe_renormalize": metadata.flag(".expert_weights_norm", True),
        "moe_layer_freq": 1,
        "moe_router_activation_func": "sigmoid",
    }
    return own, own["qk_rope_head_dim"]


def _kimi_linear(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    own, rotated = _kimi(metadata, config, shapes)
    return own | {"model_type": "kimi_linear"}, rotated


def _kimi_k3(metadata: Metadata, config: Mapping[str, Any], shapes: Shapes) -> tuple[dict[str, Any], int]:
    own, rotated = _kimi(metadata, config, shapes)
    own["linear_attn_config"] |= {
        "gate_lower_bound": metadata.real(".kda.gate_lower_bound"),
        "use_full_rank_gate": True,
    }
    parts = {name.split(".", 3)[3] for name in shapes if name.startswith("model.layers.")}
    full = own["linear_attn_config"]["full_attn_layers"][0] - 1
    return own | {
        "model_type": "kimi_k3",
        "hidden_act": "situ",
        "activation_situ_beta": metadata.real(".activation.situ_beta"),
        "activation_situ_linear_beta": metadata.real(".activation.situ_linear_beta"),
        "attn_res_block_size": metadata.integer(".attn_res.block_size"),
        "mla_use_output_gate": f"model.layers.{full}.self_attn.g_proj.weight" in shapes,
        "routed_expert_hidden_size": metadata.integer(".expert_latent_length"),
        "latent_moe_use_norm": "block_sparse_moe.routed_expert_norm.weight" in parts,
    }, rotated


FAMILIES: Mapping[str, Family] = {
    "deepseek2": _deepseek2,
    "glm4moe": _glm4_moe,
    "gpt-oss": _gpt_oss,
    "granitemoe": _granite_moe,
    "kimi-k3": _kimi_k3,
    "kimi-linear": _kimi_linear,
    "llama": _llama,
    "olmoe": _olmoe,
    "qwen2": _dense("qwen2", biased=False),
    "qwen2moe": _qwen2_moe,
    "qwen3": _dense("qwen3", biased=True),
    "qwen3moe": _qwen3_moe,
    "smollm3": _dense("smollm3", biased=True),
}
"""By GGUF's architecture; the same as in `gguf_names.NAMES`."""
