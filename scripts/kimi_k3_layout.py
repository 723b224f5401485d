"""The layout of a Kimi K3 checkpoint: its config, and the names, dtypes, shapes and order of its tensors.

What the release has is written down here once; `make_kimi_k3.py` fills the layout with random numbers in any
size, `make_skeleton.py` with holes in the real size.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

LANGUAGE = "language_model."
DTYPE_BYTES = {"F32": 4, "BF16": 2, "U8": 1}
"""Inside a file tensors stand in the order of these dtypes, then by name."""
VISION_LAYERS = 27
VISION_FILES = 2

_TEXT: dict[str, Any] = {
    "model_type": "kimi_linear",
    "vocab_size": 163840,
    "hidden_size": 7168,
    "num_hidden_layers": 93,
    "rms_norm_eps": 1e-5,
    "hidden_act": "situ",
    "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0,
    "attn_res_block_size": 12,
    "num_attention_heads": 96,
    "num_key_value_heads": 96,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "mla_use_nope": True,
    "mla_use_output_gate": True,
    "num_experts": 896,
    "num_experts_per_token": 16,
    "num_shared_experts": 2,
    "num_expert_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "routed_expert_hidden_size": 3584,
    "latent_moe_use_norm": True,
    "moe_intermediate_size": 3072,
    "moe_layer_freq": 1,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "routed_scaling_factor": 1.0,
    "first_k_dense_replace": 1,
    "intermediate_size": 33792,
    "max_position_embeddings": 1048576,
    "num_nextn_predict_layers": 0,
    "tie_word_embeddings": False,
    "bos_token_id": 163584,
    "eos_token_id": 163586,
    "pad_token_id": 163839,
}
_LINEAR: dict[str, Any] = {
    "num_heads": 96,
    "head_dim": 128,
    "short_conv_kernel_size": 4,
    "gate_lower_bound": -5.0,
    "use_full_rank_gate": True,
}
_QUANTIZATION: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "mxfp4-pack-quantized",
    "quantization_status": "compressed",
    "config_groups": {
        "group_0": {
            "format": "mxfp4-pack-quantized",
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4,
                "type": "float",
                "group_size": 32,
                "strategy": "group",
                "symmetric": True,
                "scale_dtype": "torch.uint8",
            },
        }
    },
}


class Tensor(NamedTuple):
    """One tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        size = DTYPE_BYTES[self.dtype]
        for axis in self.shape:
            size *= axis
        return size


def text_config(
    *, linear: dict[str, Any] | None = None, mxfp4: bool = True, **changes: Any
) -> dict[str, Any]:
    """The language model's config: the release's, with `changes`, and `linear` changed in linear_attn_config.

    Every fourth layer and the last have latent attention, unless `linear` gives full_attn_layers (one-based).
    """
    text = copy.deepcopy(_TEXT) | changes
    layers = text["num_hidden_layers"]
    mixer = _LINEAR | (linear or {})
    full = mixer.get("full_attn_layers", sorted({*range(4, layers + 1, 4), layers}))
    mixer["full_attn_layers"] = full
    mixer["kda_layers"] = [number for number in range(1, layers + 1) if number not in full]
    text["linear_attn_config"] = mixer
    if mxfp4:
        text["quantization_config"] = copy.deepcopy(_QUANTIZATION)
    return text


def whole_config(text: dict[str, Any]) -> dict[str, Any]:
    """config.json around a text config."""
    return {
        "architectures": ["KimiK3ForConditionalGeneration"],
        "model_type": "kimi_k3",
        "dtype": "bfloat16",
        "tie_word_embeddings": text["tie_word_embeddings"],
        "text_config": text,
    }


def ordered(tensors: list[Tensor]) -> list[Tensor]:
    """In the order of a released file: a layer's trunk is one run of bytes, and so is every expert."""
    kinds = list(DTYPE_BYTES)
    return sorted(tensors, key=lambda tensor: (kinds.index(tensor.dtype), tensor.name))


def layer_tensors(text: dict[str, Any], layer: int) -> list[Tensor]:
    """The tensors of a layer (from zero), in the order of its file."""
    prefix = f"{LANGUAGE}model.layers.{layer}."
    width = text["hidden_size"]
    tensors = [
        Tensor(f"{prefix}{name}.weight", "BF16", (width,))
        for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm")
    ]
    tensors += [
        Tensor(f"{prefix}{name}.weight", "BF16", (1, width))
        for name in ("self_attention_res_proj", "mlp_res_proj")
    ]
    full = layer + 1 in text["linear_attn_config"]["full_attn_layers"]
    tensors += (_latent_attention if full else _delta_attention)(text, f"{prefix}self_attn.")
    if layer < text["first_k_dense_replace"]:
        tensors += _mlp(f"{prefix}mlp.", width, text["intermediate_size"])
    else:
        tensors += _latent_moe(text, f"{prefix}block_sparse_moe.")
    return ordered(tensors)


def end_tensors(text: dict[str, Any]) -> list[Tensor]:
    """The five tensors of no layer, in the order of their file."""
    width, vocabulary = text["hidden_size"], text["vocab_size"]
    model = f"{LANGUAGE}model."
    return ordered(
        [
            Tensor(f"{model}embed_tokens.weight", "BF16", (vocabulary, width)),
            Tensor(f"{LANGUAGE}lm_head.weight", "BF16", (vocabulary, width)),
            Tensor(f"{model}norm.weight", "BF16", (width,)),
            Tensor(f"{model}output_attn_res_norm.weight", "BF16", (width,)),
            Tensor(f"{model}output_attn_res_proj.weight", "BF16", (1, width)),
        ]
    )


def files(text: dict[str, Any]) -> Iterator[list[Tensor]]:
    """The tensors of each file of the language model: one file a layer, then one of the rest."""
    for layer in range(text["num_hidden_layers"]):
        yield layer_tensors(text, layer)
    yield end_tensors(text)


def vision_files() -> Iterator[list[Tensor]]:
    """The vision tower's two files, with as many tensors as the release has beside the language model.

    Their shapes are not known here and no text needs them: each tensor is one value.
    """
    parts = ("attn.wo", "attn.wqkv", "mlp.fc0", "mlp.fc1", "norm0", "norm1")
    names = [f"vision_tower.blocks.{layer}.{part}.weight" for layer in range(VISION_LAYERS) for part in parts]
    names += [f"mm_projector.{part}.weight" for part in ("pre_norm", "proj.0", "proj.2")]
    names += [f"vision_tower.{part}.weight" for part in ("final_norm", "patch_embed", "pos_emb")]
    half = len(names) // VISION_FILES
    for start in range(0, len(names), half):
        yield ordered([Tensor(name, "BF16", (1,)) for name in names[start : start + half]])


def _matrices(prefix: str, shapes: dict[str, tuple[int, ...]], dtype: str = "BF16") -> list[Tensor]:
    return [Tensor(f"{prefix}{name}.weight", dtype, shape) for name, shape in shapes.items()]


def _delta_attention(text: dict[str, Any], prefix: str) -> list[Tensor]:
    linear, width = text["linear_attn_config"], text["hidden_size"]
    heads, size, taps = linear["num_heads"], linear["head_dim"], linear["short_conv_kernel_size"]
    channels = heads * size
    tensors = _matrices(prefix, {f"{letter}_proj": (channels, width) for letter in "qkvg"})
    tensors += _matrices(
        prefix,
        {
            "f_a_proj": (size, width),
            "f_b_proj": (channels, size),
            "b_proj": (heads, width),
            "o_proj": (width, channels),
        },
    )
    tensors += _matrices(prefix, {f"{letter}_conv1d": (channels, 1, taps) for letter in "qkv"}, "F32")
    tensors += _matrices(prefix, {"o_norm": (size,)}, "F32")
    return [
        *tensors,
        Tensor(f"{prefix}A_log", "F32", (size,)),
        Tensor(f"{prefix}dt_bias", "F32", (channels,)),
    ]


def _latent_attention(text: dict[str, Any], prefix: str) -> list[Tensor]:
    width, heads, rank = text["hidden_size"], text["num_attention_heads"], text["q_lora_rank"]
    latent, nope, rope = text["kv_lora_rank"], text["qk_nope_head_dim"], text["qk_rope_head_dim"]
    value = text["v_head_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "q_a_proj": (rank, width),
        "q_a_layernorm": (rank,),
        "q_b_proj": (heads * (nope + rope), rank),
        "kv_a_proj_with_mqa": (latent + rope, width),
        "kv_a_layernorm": (latent,),
        "kv_b_proj": (heads * (nope + value), latent),
        "o_proj": (width, heads * value),
    }
    if text["mla_use_output_gate"]:
        shapes["g_proj"] = (heads * value, width)
    return _matrices(prefix, shapes)


def _mlp(prefix: str, width: int, inner: int) -> list[Tensor]:
    shapes = {"gate_proj": (inner, width), "up_proj": (inner, width), "down_proj": (width, inner)}
    return _matrices(prefix, shapes)


def _latent_moe(text: dict[str, Any], prefix: str) -> list[Tensor]:
    width, latent = text["hidden_size"], text["routed_expert_hidden_size"]
    inner, experts = text["moe_intermediate_size"], text["num_experts"]
    shapes: dict[str, tuple[int, ...]] = {
        "gate": (experts, width),
        "routed_expert_down_proj": (latent, width),
        "routed_expert_up_proj": (width, latent),
    }
    if text["latent_moe_use_norm"]:
        shapes["routed_expert_norm"] = (latent,)
    tensors = _matrices(prefix, shapes)
    tensors.append(Tensor(f"{prefix}gate.e_score_correction_bias", "F32", (experts,)))
    tensors += _mlp(f"{prefix}shared_experts.", width, inner * text["num_shared_experts"])
    matrices = {"w1": (inner, latent), "w2": (latent, inner), "w3": (inner, latent)}
    for expert in range(experts):
        if "quantization_config" not in text:
            tensors += _matrices(f"{prefix}experts.{expert}.", matrices)
            continue
        for name, (rows, cols) in matrices.items():
            matrix = f"{prefix}experts.{expert}.{name}.weight"
            tensors.append(Tensor(f"{matrix}_packed", "U8", (rows, cols // 2)))
            tensors.append(Tensor(f"{matrix}_scale", "U8", (rows, cols // 32)))
    return tensors
