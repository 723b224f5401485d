"""Tiny Kimi K3 checkpoints: one for each shape that could hide a mistake from the others."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from kimi_k3_layout import text_config
from make_kimi_k3 import SHAPES, write_checkpoint

GREEDY = 24
PROMPT = 12


def shape(**changes):
    return SHAPES["tiny"] | changes


CASES = {
    "mxfp4": (shape(), True),
    "bf16": (shape(), False),
    # Blocks of two layers, the last one cut short; the block opens at layers of both kinds.
    "short_blocks": (
        shape(
            num_hidden_layers=7,
            attn_res_block_size=2,
            first_k_dense_replace=2,
            num_experts_per_token=1,
            linear={"num_heads": 5, "head_dim": 18, "short_conv_kernel_size": 3, "full_attn_layers": [3, 5]},
        ),
        True,
    ),
    # What the release switches on is off, or scaled otherwise.
    "other_switches": (
        shape(
            num_hidden_layers=5,
            mla_use_output_gate=False,
            latent_moe_use_norm=False,
            moe_renormalize=False,
            num_shared_experts=1,
            routed_scaling_factor=0.7,
            num_experts=9,
            num_experts_per_token=4,
            routed_expert_hidden_size=96,
            moe_intermediate_size=64,
            activation_situ_beta=2.5,
            activation_situ_linear_beta=7.0,
            linear={"num_heads": 3, "head_dim": 26, "gate_lower_bound": -2.0},
        ),
        True,
    ),
}


def make(name, directory):
    """Writes the checkpoint of a case; the seed is its place in `CASES`."""
    sizes, mxfp4 = CASES[name]
    write_checkpoint(directory, text_config(**sizes, mxfp4=mxfp4), seed=list(CASES).index(name))


def prompt(name):
    """Token ids [12] of a case."""
    sizes, _ = CASES[name]
    return np.random.default_rng(list(CASES).index(name)).integers(0, sizes["vocab_size"], PROMPT)
