"""GGUF's names of tensors -> the names that a Hugging Face checkpoint of the same model has.

Most names mean the same in every architecture; the few that differ, and the whole part of a mixture, stand in
one table. Routed experts are stacks of matrices here, called as one expert's without its number. A name that
is not known stays as it is, so that the packer names it as left over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

ROTARY_FACTORS = "rope_freqs.weight"
"""The tensor that stands for Llama 3's scaling of rotary frequencies."""

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_sinks.weight": "self_attn.sinks",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_k_b": "self_attn.k_b_proj",
    "attn_v_b": "self_attn.v_b_proj",
    "attn_gate": "self_attn.g_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ssm_conv1d_q": "self_attn.q_conv1d",
    "ssm_conv1d_k": "self_attn.k_conv1d",
    "ssm_conv1d_v": "self_attn.v_conv1d",
    "ssm_f_a": "self_attn.f_a_proj",
    "ssm_f_b": "self_attn.f_b_proj",
    "ssm_g_a": "self_attn.g_a_proj",
    "ssm_g_b": "self_attn.g_b_proj",
    "ssm_g": "self_attn.g_proj",
    "ssm_beta": "self_attn.b_proj",
    "ssm_norm": "self_attn.o_norm",
    "ssm_a": "self_attn.A_log",
    "ssm_a.weight": "self_attn.A_log",
    "ssm_dt.bias": "self_attn.dt_bias",
    "attn_res_score.weight": "self_attention_res_proj.weight",
    "ffn_res_score.weight": "mlp_res_proj.weight",
}
_SECOND_NORM = {"post_attention_norm": "post_attention_layernorm"}
"""Where the norm before the feed-forward part is called after what it follows."""
_NUMBERED = re.compile(r"ffn_(gate|up|down)\.(\d+)\.weight")
"""One expert of an old file."""
_IN_LAYER = re.compile(r"blk\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class Mixture:
    """How a family calls its mixture of experts: `part` of a layer, its router, its shared network, and an
    expert's gate, up and down."""

    part: str = "mlp"
    router: str = "gate"
    shared: str = "shared_experts"
    experts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")

    def names(self) -> dict[str, str]:
        """GGUF's names of the mixture's tensors in one layer -> the checkpoint's."""
        names = {
            "ffn_gate_inp": f"{self.part}.{self.router}",
            "exp_probs_b.bias": f"{self.part}.gate.e_score_correction_bias",
            "exp_probs_b": f"{self.part}.gate.e_score_correction_bias",
            "ffn_gate_inp_shexp": f"{self.part}.{self.shared}_gate",
            "ffn_gate_up_exps.weight": f"{self.part}.experts.gate_up_proj",
            "ffn_routed_down": f"{self.part}.routed_expert_down_proj",
            "ffn_routed_norm": f"{self.part}.routed_expert_norm",
            "ffn_routed_up": f"{self.part}.routed_expert_up_proj",
        }
        for kind, own in zip(("gate", "up", "down"), self.experts, strict=True):
            names[f"ffn_{kind}_exps"] = f"{self.part}.experts.{own}"
            names[f"ffn_{kind}_shexp"] = f"{self.part}.{self.shared}.{kind}_proj"
        return names


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one architecture. `is_permuted`: the converter laid the rows of queries and keys of each
    head in pairs (2 i, 2 i + 1), which are halves in the checkpoint."""

    mixture: Mixture = Mixture()
    others: Mapping[str, str] = field(default_factory=dict)
    is_permuted: bool = False

    def checkpoint_name(self, name: str) -> str:
        """The name that a Hugging Face checkpoint gives the GGUF tensor `name`; unknown names stay."""
        match = _IN_LAYER.fullmatch(name)
        if match is None:
            return _renamed(
                name, _OUTER | {"output_res_score.weight": "model.output_attn_res_proj.weight"}, ""
            )
        layer = f"model.layers.{match[1]}."
        expert = _NUMBERED.fullmatch(match[2])
        if expert is not None:
            own = self.mixture.experts[("gate", "up", "down").index(expert[1])]
            return f"{layer}{self.mixture.part}.experts.{expert[2]}.{own}.weight"
        return _renamed(match[2], {**_LAYER, **self.mixture.names(), **self.others}, layer, otherwise=name)


def _renamed(name: str, table: Mapping[str, str], prefix: str, otherwise: str | None = None) -> str:
    if name in table:
        return prefix + table[name]
    stem, _, kind = name.rpartition(".")
    return f"{prefix}{table[stem]}.{kind}" if stem in table else otherwise or name


_BLOCK_SPARSE = Mixture("block_sparse_moe", experts=("w1", "w3", "w2"))
_DENSE = Names()
NAMES: Mapping[str, Names] = {
    "deepseek2": Names(),
    "glm4moe": Names(others=_SECOND_NORM),
    "gpt-oss": Names(Mixture(router="router"), _SECOND_NORM),
    "granitemoe": Names(Mixture("block_sparse_moe", "router.layer"), is_permuted=True),
    "kimi-k3": Names(_BLOCK_SPARSE),
    "kimi-linear": Names(_BLOCK_SPARSE),
    "llama": Names(_BLOCK_SPARSE, is_permuted=True),
    "olmoe": _DENSE,
    "qwen2": _DENSE,
    "qwen2moe": Names(Mixture(shared="shared_expert")),
    "qwen3": _DENSE,
    "qwen3moe": _DENSE,
    "smollm3": Names(is_permuted=True),
}
"""By GGUF's architecture."""
