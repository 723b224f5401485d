"""The golden cases as GGUF files, as the public converter writes them.

Tensors are named by the gguf package's own table, and laid out anew as the converter does; nothing here is
the package's under test.
"""

import re

import gguf
import numpy as np

MOE = ("num_experts", "num_local_experts", "n_routed_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token")
ARCHITECTURES = {
    "llama": "llama",
    "llama_linear_scaling": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_yarn": "qwen3",
    "smollm3": "smollm3",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "olmoe": "olmoe",
    "granitemoe": "granitemoe",
    "gpt_oss": "gpt-oss",
    "glm4_moe": "glm4moe",
    "deepseek_v2": "deepseek2",
    "deepseek_v2_groups": "deepseek2",
    "kimi_k2": "deepseek2",
    "glm4_moe_lite": "deepseek2",
    "kimi_linear": "kimi-linear",
    "kimi_linear_groups": "kimi-linear",
}
"""The cases that GGUF can say, with their architectures there."""
PERMUTED = ("llama", "granitemoe", "smollm3")
SUFFIXES = (".weight", ".bias")


def write_golden(path, name, golden):
    """Writes the golden case `name` into the GGUF file `path`."""
    arch = ARCHITECTURES[name]
    config = golden.config
    writer = gguf.GGUFWriter(path, arch)
    for key, value in keys_of(arch, config).items():
        full = f"{arch}.{key}"
        if isinstance(value, bool):
            writer.add_bool(full, value)
        elif isinstance(value, list):
            writer.add_array(full, value)
        elif isinstance(value, str):
            writer.add_string(full, value)
        elif isinstance(value, float):
            writer.add_float32(full, value)
        else:
            writer.add_uint32(full, value)
    number = next(key for key, known in gguf.MODEL_ARCH_NAMES.items() if known == arch)
    names = gguf.get_tensor_name_map(number, config["num_hidden_layers"])
    for tensor, values in laid_out(arch, config, golden.checkpoint).items():
        writer.add_tensor(name_of(names, tensor), np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def name_of(names, tensor):
    """The converter's name of a checkpoint's tensor."""
    if tensor.endswith(".A_log"):
        return names.get_name(tensor)
    if tensor.endswith(("sinks", ".dt_bias", "e_score_correction_bias")):
        tensor = tensor.replace("dt_bias", "dt_proj").replace("e_score_correction_bias", "e_score_correction")
        suffix = ".weight" if tensor.endswith("sinks") else ".bias"
        return names.get_name(tensor) + suffix
    name = names.get_name(tensor, try_suffixes=SUFFIXES)
    if name is None:  # a dense layer where the table has experts in all
        name = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 9).get_name(tensor, try_suffixes=SUFFIXES)
    assert name is not None, tensor
    return name


def keys_of(arch, config):
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    keys = {
        "block_count": config["num_hidden_layers"],
        "context_length": config.get("max_position_embeddings", 256),
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
        "vocab_size": config["vocab_size"],
    }
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    if arch not in ("deepseek2", "kimi-linear"):
        keys |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    kind = rope.get("rope_type", "default")
    if kind != "default":
        keys |= {"rope.scaling.type": kind, "rope.scaling.factor": float(rope["factor"])}
    if kind == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        keys |= {f"rope.scaling.yarn_{key}": float(rope[key]) for key in ("beta_fast", "beta_slow")}
        if rope.get("mscale_all_dim"):
            keys["rope.scaling.yarn_log_multiplier"] = 0.1 * rope["mscale_all_dim"]
    count = next((config[key] for key in MOE if config.get(key)), 0)
    if count:
        top_k = next(config[key] for key in TOP_K if key in config)
        keys |= {"expert_count": count, "expert_used_count": top_k}
        if config.get("moe_intermediate_size"):
            keys["expert_feed_forward_length"] = config["moe_intermediate_size"]
    return keys | OWN.get(arch, lambda config: {})(config)


def _granite(config):
    return {
        "attention.scale": config["attention_multiplier"],
        "embedding_scale": config["embedding_multiplier"],
        "residual_scale": config["residual_multiplier"],
        "logit_scale": config["logits_scaling"],
    }


def _grouped(config):
    sigmoid = config["model_type"] != "deepseek_v2"
    norm = config.get("norm_topk_prob", config.get("moe_renormalize", True))
    layers = config.get("mlp_layer_types") or ["dense"] * config.get("first_k_dense_replace", 1)
    return {
        "expert_shared_count": config.get("n_shared_experts", config.get("num_shared_experts")) or 0,
        "expert_weights_scale": config["routed_scaling_factor"],
        "expert_weights_norm": sigmoid and norm is not False,
        "expert_gating_func": 2 if sigmoid else 1,
        "expert_group_count": config.get("n_group", config.get("num_expert_group")) or 1,
        "expert_group_used_count": config.get("topk_group") or 1,
        "leading_dense_block_count": layers.count("dense"),
    }


def _latent(config):
    rope, rank = config["qk_rope_head_dim"], config["kv_lora_rank"]
    return _grouped(config) | {
        "attention.head_count_kv": 1,
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rope,
        "attention.value_length": rank,
        "attention.key_length_mla": config["qk_nope_head_dim"] + rope,
        "attention.value_length_mla": config["v_head_dim"],
        "rope.dimension_count": rope,
        **({"attention.q_lora_rank": config["q_lora_rank"]} if config.get("q_lora_rank") else {}),
    }


def _kimi_linear(config):
    mixer = config["linear_attn_config"]
    full = mixer["full_attn_layers"]
    return _latent(config) | {
        "attention.value_length": config["head_dim"],  # as the converter leaves it here
        "hidden_act": "silu",
        "attention.head_count_kv": [int(n + 1 in full) for n in range(config["num_hidden_layers"])],
        "kda.head_dim": mixer["head_dim"],
        "ssm.conv_kernel": mixer["short_conv_kernel_size"],
    }


OWN = {
    "qwen2moe": lambda config: {
        "expert_shared_feed_forward_length": config["shared_expert_intermediate_size"]
    },
    "qwen3moe": lambda config: {"expert_weights_norm": bool(config.get("norm_topk_prob"))},
    "olmoe": lambda config: {"attention.clamp_kqv": config["clip_qkv"]},
    "granitemoe": _granite,
    "gpt-oss": lambda config: {
        "attention.sliding_window": config["sliding_window"],
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_beta_fast": 32.0,
        "rope.scaling.yarn_beta_slow": 1.0,
        "rope.freq_base": 150000.0,
        "expert_feed_forward_length": config["intermediate_size"],
    },
    "glm4moe": lambda config: _grouped(config) | {"rope.dimension_count": config["head_dim"] // 2},
    "deepseek2": _latent,
    "kimi-linear": _kimi_linear,
}


def laid_out(arch, config, checkpoint):
    """The checkpoint's tensors as the converter lays them out: experts in stacks, and what `anew` changes."""
    tensors, stacks = {}, {}
    for name, values in checkpoint.items():
        expert = re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+\.weight)", name)
        if expert is not None:
            stacks.setdefault(f"{expert[1]}.{expert[3]}", {})[int(expert[2])] = values
        else:
            tensors |= anew(arch, config, name, values)
    for name, experts in stacks.items():
        tensors[name] = np.stack([experts[number] for number in sorted(experts)])
    return tensors


def anew(arch, config, name, values):
    """What becomes of one tensor: name -> array."""
    stem = name.rpartition(".")[0]
    if arch in PERMUTED and stem.endswith(("q_proj", "k_proj")):
        heads = config["num_attention_heads" if stem.endswith("q_proj") else "num_key_value_heads"]
        rows = values.reshape(heads, 2, len(values) // heads // 2, *values.shape[1:])
        return {name: rows.swapaxes(1, 2).reshape(values.shape)}
    if stem.endswith("kv_b_proj"):
        heads, value = config["num_attention_heads"], config["v_head_dim"]
        halves = values.reshape(heads, -1, values.shape[-1])
        keys, rest = halves[:, : halves.shape[1] - value], halves[:, halves.shape[1] - value :]
        prefix = stem.removesuffix("kv_b_proj")
        return {f"{prefix}k_b_proj.weight": keys.swapaxes(1, 2), f"{prefix}v_b_proj.weight": rest}
    if name.endswith("A_log"):
        return {name: -np.exp(values).reshape(1, 1, -1, 1)}
    if stem.endswith("conv1d"):
        return {name: values.reshape(1, values.shape[0], 1, values.shape[-1])}
    if stem.endswith("shared_expert_gate"):
        return {name: values.reshape(-1)}
    if stem.endswith("block_sparse_moe.input_linear"):
        gate, up = np.split(values, 2, axis=1)
        prefix = stem.removesuffix("input_linear")
        return {f"{prefix}experts.w1.weight": gate, f"{prefix}experts.w3.weight": up}
    if stem.endswith("block_sparse_moe.output_linear"):
        return {name.replace("output_linear", "experts.w2"): values}
    if arch == "gpt-oss" and ".experts." in name:
        return _gpt_oss(name, values)
    return {name: values}


def _gpt_oss(name, values):
    """Gate and up out of every second column, matrices as [out, in]."""
    if not name.endswith("_bias"):
        values = values.swapaxes(1, 2)
    name = name.removesuffix("_bias") + (".bias" if name.endswith("_bias") else ".weight")
    if "gate_up_proj" not in name:
        return {name: values}
    return {
        name.replace("gate_up_proj", "gate_proj"): values[:, ::2],
        name.replace("gate_up_proj", "up_proj"): values[:, 1::2],
    }
