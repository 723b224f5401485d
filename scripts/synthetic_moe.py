"""Checkpoints of random bf16 weights in the layout of Qwen3-MoE, beside `make_synthetic.py`'s dense ones.

Routers are zero-mean, and what they see depends on the token: attention, which mixes tokens, adds little to
the stream and experts add much (`GAINS`). So over 64 tokens nearly all experts are used, about equally often,
and a cache hits little more than its share of them. The next layer's router names two thirds to three
quarters of the experts one layer early. Without the gains a direction that all tokens share grows from layer
to layer, and a quarter of the experts is never used.

    python scripts/synthetic_moe.py OUT --layers 12 --hidden 1024 --inner 512 --experts 64 --per-token 6
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from make_synthetic import Shapes, write_checkpoint

from uringinfer.units import format_size

GAINS = {"o_proj": 0.2, "down_proj": 3.0}
"""For `write_checkpoint`."""


def moe_config(
    *,
    layers: int = 12,
    hidden: int = 1024,
    inner: int = 512,
    experts: int = 64,
    per_token: int = 6,
    heads: int = 16,
    kv_heads: int = 4,
    vocab: int = 16000,
) -> dict[str, Any]:
    """A config.json of Qwen3-MoE with these dimensions."""
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "moe_intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "num_experts": experts,
        "num_experts_per_tok": per_token,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "vocab_size": vocab,
        "max_position_embeddings": 8192,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
    }


def moe_tensors(config: Mapping[str, Any]) -> Shapes:
    """The shape of every tensor of such a checkpoint, by its published name."""
    hidden, inner, head = config["hidden_size"], config["moe_intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: Shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (queries, hidden),
            f"{prefix}.self_attn.k_proj.weight": (keys, hidden),
            f"{prefix}.self_attn.v_proj.weight": (keys, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, queries),
            f"{prefix}.self_attn.q_norm.weight": (head,),
            f"{prefix}.self_attn.k_norm.weight": (head,),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.mlp.gate.weight": (config["num_experts"], hidden),
        }
        for expert in range(config["num_experts"]):
            shapes |= {
                f"{prefix}.mlp.experts.{expert}.gate_proj.weight": (inner, hidden),
                f"{prefix}.mlp.experts.{expert}.up_proj.weight": (inner, hidden),
                f"{prefix}.mlp.experts.{expert}.down_proj.weight": (hidden, inner),
            }
    shapes["model.norm.weight"] = (hidden,)
    shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    for name in ("layers", "hidden", "inner", "experts", "per_token", "heads", "kv_heads", "vocab"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    out, seed = options.pop("out"), options.pop("seed")
    config = moe_config(**{name: value for name, value in options.items() if value is not None})
    nbytes = write_checkpoint(out, config, moe_tensors(config), seed=seed, gains=GAINS)
    print(f"{out}: {config['num_hidden_layers']} layers, {format_size(nbytes)} of bf16 weights")


if __name__ == "__main__":
    main()
