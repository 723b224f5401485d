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


def case(model_type, seed=1, tokens=20, **options):
    """One golden case: BASE with `options` on top."""
    return {"model_type": model_type, "seed": seed, "tokens": tokens, "config": {**BASE, **options}}


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
}
