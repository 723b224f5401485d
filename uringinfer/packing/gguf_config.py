"""GGUF metadata -> the config.json that a Hugging Face checkpoint of the same model has.

`make_config` reads what all architectures share; what each has of its own is in `gguf_families`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import IntegrityError
from uringinfer.models.bounds import DEPTH
from uringinfer.packing.gguf_families import FAMILIES, Shapes
from uringinfer.packing.gguf_metadata import Metadata
from uringinfer.packing.gguf_rope import rope_scaling

_TOKENS = (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding"))


def make_config(
    metadata: Metadata, shapes: Shapes, rotary_factors: NDArray[np.float32] | None
) -> dict[str, Any]:
    """The config.json that these metadata describe.

    `shapes` gives the checkpoint's tensors by Hugging Face names; `rotary_factors` float32
    [rotated channels / 2] is what `gguf_names.ROTARY_FACTORS` holds, if the file has it. Raises
    UnsupportedModelError for what no config of these families says, naming the key.
    """
    embedding = shapes.get("model.embed_tokens.weight")
    if embedding is None or len(embedding) != 2:
        raise IntegrityError(f"{metadata.path}: holds no token_embd.weight")
    family = FAMILIES[metadata.architecture]
    theta = metadata.real(".rope.freq_base", 10000.0)
    config: dict[str, Any] = {
        "model_type": "",
        "hidden_size": metadata.integer(".embedding_length"),
        "intermediate_size": _inner(metadata, shapes),
        "num_hidden_layers": model_layers(metadata),
        "num_attention_heads": metadata.integer(".attention.head_count"),
        "vocab_size": embedding[0],
        "max_position_embeddings": metadata.integer(".context_length"),
        "rms_norm_eps": metadata.real(".attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "hidden_act": "silu",
        "tie_word_embeddings": "lm_head.weight" not in shapes,
        "torch_dtype": "bfloat16",
    }
    own, rotated = family(metadata, config, shapes)
    config |= own
    scaling = rope_scaling(metadata, theta, rotated, rotary_factors)
    if scaling is not None:
        config["rope_scaling"] = scaling
    for key, name in _TOKENS:
        token = metadata.index(f"tokenizer.ggml.{name}_token_id")
        if token is not None:
            config[key] = token
    metadata.finish()
    return config


def model_layers(metadata: Metadata) -> int:
    """Layers of the model proper: `block_count` includes those that draft further tokens."""
    blocks = metadata.integer(".block_count")
    if blocks > DEPTH[1]:
        raise metadata.refuse(".block_count", f"at most {DEPTH[1]} layers")
    drafts = metadata.integer(".nextn_predict_layers", 0, minimum=0)
    if drafts >= blocks:
        raise metadata.refuse(".nextn_predict_layers", f"less than block_count, {blocks}")
    return blocks - drafts


def _inner(metadata: Metadata, shapes: Shapes) -> int:
    """Channels of a dense feed-forward network; where all layers have experts, of an expert."""
    gate = shapes.get("model.layers.0.mlp.gate_proj.weight")
    default = gate[0] if gate else metadata.integer(".expert_feed_forward_length", 0)
    return metadata.integer(".feed_forward_length", default or None)
