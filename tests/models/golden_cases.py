"""The configurations that have golden logits: every family, and every option that changes its results."""

BASE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
}


EXPERTS = {"num_experts_per_tok": 3, "moe_intermediate_size": 20}
DEEPSEEK = {
    **EXPERTS,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "v_head_dim": 9,
    "routed_scaling_factor": 1.5,
}
WHOLE_BLOCKS = {
    "moe_intermediate_size": 32,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
}
"""Sizes that blocks of 16 divide, in the place of those of DEEPSEEK."""
GROUPS = {"n_group": 4, "topk_group": 2}


# Kimi-Linear, with the names that transformers gives to the keys of the published config.
KIMI_LINEAR = {
    **EXPERTS,
    "num_hidden_layers": 5,
    "num_key_value_heads": 4,
    "num_local_experts": 8,
    "n_shared_experts": 1,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 6,
    "v_head_dim": 10,
    "routed_scaling_factor": 2.5,
    "layer_types": ["linear_attention"] * 3 + ["full_attention", "linear_attention"],
    "mlp_layer_types": ["dense"] + ["sparse"] * 4,
    "linear_num_heads": 3,
    "linear_head_dim": 12,
    "linear_conv_kernel_dim": 4,
}
KIMI_LINEAR_PUBLISHED = {
    "linear_attn_config": {
        "full_attn_layers": [4],
        "kda_layers": [1, 2, 3, 5],
        "num_heads": 3,
        "head_dim": 12,
        "short_conv_kernel_size": 4,
    },
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "moe_router_activation_func": "sigmoid",
    "mla_use_nope": True,
    "use_grouped_topk": True,
    **dict.fromkeys(
        ("layer_types", "mlp_layer_types", "linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    ),
}
KIMI_LINEAR_NAMES = {r"block_sparse_moe\.((gate|up|down)_proj)": r"mlp.\1"}


def case(model_type, seed=1, tokens=20, renamed=None, names=None, quantization=None, **options):
    """One golden case: BASE with `options` on top. `renamed` are keys to change in the config afterwards, for
    models that the oracle knows under another name. `names` (pattern -> replacement) turns the names that the
    oracle saves tensors under into those of published checkpoints, which it reads too. `quantization` is the
    quantization_config of a checkpoint whose weights tests/models/tiny_quantised.py packs."""
    config = {**BASE, **options}
    return {
        "model_type": model_type,
        "seed": seed,
        "tokens": tokens,
        "renamed": renamed or {},
        "names": names or {},
        "quantization": quantization,
        "config": config,
    }


CASES = {
    "llama": case("llama", num_key_value_heads=4),
    "llama3_scaling": case("llama", rope_parameters=LLAMA3, tie_word_embeddings=True),
    "llama_linear_scaling": case(
        "llama", rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}
    ),
    "llama_biases": case(
        "llama", attention_bias=True, mlp_bias=True, head_dim=16, hidden_act="gelu_pytorch_tanh"
    ),
    "mistral": case("mistral", sliding_window=None),
    "mistral_window": case("mistral", sliding_window=5),
    "qwen2": case("qwen2", tie_word_embeddings=True),
    "qwen2_windows": case("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": case("qwen3", head_dim=16),
    "qwen3_yarn": case("qwen3", head_dim=16, attention_bias=True, rope_parameters=YARN),
    "smollm3": case("smollm3", tie_word_embeddings=True, num_hidden_layers=4),
    "smollm3_marks": case("smollm3", no_rope_layers=[0, 1, 0], attention_bias=True, mlp_bias=True),
    "mixtral": case("mixtral", num_local_experts=6, num_experts_per_tok=2),
    "qwen2_moe": case(
        "qwen2_moe",
        **EXPERTS,
        num_experts=8,
        shared_expert_intermediate_size=24,
        mlp_only_layers=[1],
        norm_topk_prob=False,
    ),
    "qwen3_moe": case(
        "qwen3_moe", **EXPERTS, num_experts=8, head_dim=16, decoder_sparse_step=2, num_hidden_layers=4
    ),
    "qwen3_moe_window": case(
        "qwen3_moe",
        **EXPERTS,
        num_experts=8,
        norm_topk_prob=True,
        use_sliding_window=True,
        sliding_window=6,
    ),
    "olmoe": case("olmoe", num_experts=8, num_experts_per_tok=3, clip_qkv=0.9),
    "granitemoe": case(
        "granitemoe",
        num_local_experts=8,
        num_experts_per_tok=3,
        embedding_multiplier=3.0,
        logits_scaling=2.0,
        residual_multiplier=0.5,
        attention_multiplier=0.2,
        attention_bias=True,
    ),
    "gpt_oss": case("gpt_oss", head_dim=16, num_local_experts=8, num_experts_per_tok=2, sliding_window=6),
    "gpt_oss_mxfp4": case(
        "gpt_oss",
        quantization={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
        head_dim=16,
        intermediate_size=64,
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=6,
    ),
    "glm4_moe": case(
        "glm4_moe",
        **EXPERTS,
        **GROUPS,
        n_routed_experts=8,
        n_shared_experts=1,
        head_dim=16,
        use_qk_norm=True,
        attention_bias=True,
        routed_scaling_factor=1.5,
    ),
    "deepseek_v2": case("deepseek_v2", **{**DEEPSEEK, "q_lora_rank": None}),
    "deepseek_v2_groups": case("deepseek_v2", **DEEPSEEK, **GROUPS, topk_method="group_limited_greedy"),
    "deepseek_v3": case(
        "deepseek_v3", **DEEPSEEK, **GROUPS, rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 0.7}
    ),
    "deepseek_v3_fp8": case(
        "deepseek_v3",
        quantization={
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [16, 16],
        },
        **{**DEEPSEEK, **WHOLE_BLOCKS},
        **GROUPS,
    ),
    "deepseek_v3_halves": case(
        "deepseek_v3",
        **DEEPSEEK,
        n_group=1,
        topk_group=1,
        rope_interleave=False,
        norm_topk_prob=False,
        rms_norm_eps=0.05,
    ),
    "kimi_k2": case(
        "deepseek_v3",
        renamed={"model_type": "kimi_k2"},
        seed=2,
        **DEEPSEEK,
        n_group=1,
        topk_group=1,
        rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    ),
    "glm4_moe_lite": case(
        "glm4_moe_lite",
        **{key: value for key, value in DEEPSEEK.items() if key != "first_k_dense_replace"},
        mlp_layer_types=["dense", "sparse", "sparse"],
        rms_norm_eps=0.05,
    ),
    "kimi_linear": case(
        "kimi_linear",
        renamed=KIMI_LINEAR_PUBLISHED,
        names=KIMI_LINEAR_NAMES,
        q_lora_rank=None,
        n_group=1,
        topk_group=1,
        **KIMI_LINEAR,
    ),
    "kimi_linear_groups": case(
        "kimi_linear",
        renamed=KIMI_LINEAR_PUBLISHED,
        names=KIMI_LINEAR_NAMES,
        q_lora_rank=14,
        norm_topk_prob=False,
        **KIMI_LINEAR,
        **GROUPS,
    ),
}
