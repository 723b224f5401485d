"""Makes a Kimi K3 checkpoint of random numbers, in the release's layout and in any size.

    python scripts/make_kimi_k3.py OUT --seed 1                 # 2 MB, every mechanism shows in the logits
    python scripts/make_kimi_k3.py OUT --shape bench            # 3.8 GB, for scripts/bench_decode.py
    python scripts/make_kimi_k3.py OUT --experts bf16           # experts that are not quantised

With small random weights much of the architecture would not show: the norm behind the experts hides how their
shares are normalised, flat attention hides its scale, and no eps matters. `GAINS` says how large each part's
output becomes, so that none of this is hidden; `mutate_kimi_k3.py` proves it. The same arguments give the
same bytes.
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from kimi_k3_layout import Tensor, files, text_config, whole_config
from numpy.typing import NDArray

GAINS = {
    "lm_head": 2.0,
    "res_proj": 0.7,
    "g_proj": 1.5,
    "o_proj": 0.6,
    # Near sqrt(rms_norm_eps): the eps of the norm behind these two counts.
    "q_a_proj": 0.003,
    "kv_a_proj_with_mqa": 0.003,
    "q_b_proj": 1.5,
    "kv_b_proj": 1.5,
    "gate_proj": 2.0,
    "up_proj": 6.0,
    "w1": 2.0,
    "w3": 6.0,
    "routed_expert_up_proj": 0.4,
}
"""Size of a matrix' output for an input of size 1, by the end of its name; 1 where none is given."""
ROPE_KEY_GAIN = 1.5
MLP_GAIN = 0.3
EXPERT_GAIN = 0.003
"""Sizes of what a dense MLP and a routed expert put out; the latter near sqrt(rms_norm_eps) again."""

_FP4 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_FP4_SIZE = float(np.sqrt(np.mean(_FP4**2)))

SHAPES: dict[str, dict[str, Any]] = {
    # No two sizes are equal that could be mistaken for one another.
    "tiny": {
        "vocab_size": 272,
        "hidden_size": 80,
        "num_hidden_layers": 9,
        "attn_res_block_size": 4,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "q_lora_rank": 44,
        "kv_lora_rank": 36,
        "qk_nope_head_dim": 18,
        "qk_rope_head_dim": 14,
        "v_head_dim": 22,
        "num_experts": 12,
        "num_experts_per_token": 3,
        "routed_expert_hidden_size": 64,
        "moe_intermediate_size": 32,
        "intermediate_size": 144,
        "routed_scaling_factor": 1.5,
        "bos_token_id": 268,
        "eos_token_id": 269,
        "pad_token_id": 271,
        "linear": {"num_heads": 4, "head_dim": 24},
    },
    # Bytes read for one token: trunk to experts as in the release, about 4 to 1.
    "bench": {
        "vocab_size": 16384,
        "hidden_size": 1536,
        "num_hidden_layers": 20,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "q_lora_rank": 384,
        "kv_lora_rank": 256,
        "num_experts": 48,
        "num_experts_per_token": 8,
        "routed_expert_hidden_size": 1024,
        "moe_intermediate_size": 1536,
        "intermediate_size": 6144,
        "bos_token_id": 16380,
        "eos_token_id": 16381,
        "pad_token_id": 16383,
        "linear": {"num_heads": 20},
    },
}


class Maker:
    """Draws one tensor after another: bfloat16 as uint16, float32, uint8."""

    def __init__(self, text: dict[str, Any], seed: int) -> None:
        self._text = text
        self._random = np.random.default_rng(seed)
        gate, up = np.random.default_rng(0).standard_normal((2, 10_000))
        beta, linear = text["activation_situ_beta"], text["activation_situ_linear_beta"]
        gate, up = GAINS["gate_proj"] * gate, GAINS["up_proj"] * up
        situ = beta * np.tanh(gate / beta) / (1 + np.exp(-gate)) * linear * np.tanh(up / linear)
        self._activation = float(np.std(situ))

    def draw(self, tensor: Tensor) -> NDArray[Any]:
        """The values of a tensor, in its dtype and shape."""
        if tensor.dtype == "U8":
            return self._mxfp4(tensor)
        short = tensor.name.rpartition(".weight")[0] or tensor.name
        short = short.rpartition(".")[2]
        values = self._values(tensor, short)
        return values if tensor.dtype == "F32" else _bfloat16(values)

    def _values(self, tensor: Tensor, short: str) -> NDArray[np.float32]:
        if short == "A_log":  # one rate a head, the rest of the vector is padding
            rates = np.zeros(tensor.shape, np.float32)
            heads = self._text["linear_attn_config"]["num_heads"]
            rates[:heads] = np.log(self._uniform((heads,), 0.5, 4.0))[: len(rates)]
            return rates
        if short == "dt_bias":
            return self._uniform(tensor.shape, -3.0, 0.0)
        if short == "e_score_correction_bias":
            return self._uniform(tensor.shape, -0.3, 0.3)
        if short == "embed_tokens":
            return self._normal(tensor.shape, 1.0)
        if len(tensor.shape) == 1:
            return self._uniform(tensor.shape, 0.5, 1.5)
        values = self._normal(tensor.shape, self._gain(short) * tensor.shape[-1] ** -0.5)
        if short == "kv_a_proj_with_mqa":
            values[self._text["kv_lora_rank"] :] *= np.float32(ROPE_KEY_GAIN / self._gain(short))
        return values

    def _gain(self, short: str) -> float:
        if short == "down_proj":
            return MLP_GAIN / self._activation
        if short == "w2":
            return EXPERT_GAIN / self._activation
        if short.endswith("res_proj"):
            return GAINS["res_proj"]
        return GAINS.get(short, 1.0)

    def _mxfp4(self, tensor: Tensor) -> NDArray[np.uint8]:
        *_, matrix, part = tensor.name.split(".")
        if part == "weight_packed":
            return self._random.integers(0, 256, tensor.shape, np.uint8)
        columns = 32 * tensor.shape[1]
        middle = round(127 + np.log2(self._gain(matrix) * columns**-0.5 / _FP4_SIZE))
        return self._random.integers(middle - 1, middle + 2, tensor.shape, np.uint8)

    def _normal(self, shape: tuple[int, ...], deviation: float) -> NDArray[np.float32]:
        return self._random.standard_normal(shape, np.float32) * np.float32(deviation)

    def _uniform(self, shape: tuple[int, ...], low: float, high: float) -> NDArray[np.float32]:
        return self._random.uniform(low, high, shape).astype(np.float32)


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)  # nearest, ties to even


def header_of(tensors: list[Tensor]) -> bytes:
    """The safetensors header of a file with these tensors, its length in front."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.nbytes
        entries[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_index(out: Path, text: dict[str, Any], shards: dict[str, list[Tensor]]) -> None:
    """config.json and model.safetensors.index.json."""
    weight_map = {tensor.name: name for name, tensors in shards.items() for tensor in tensors}
    total = sum(tensor.nbytes for tensors in shards.values() for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (out / "config.json").write_text(json.dumps(whole_config(text), indent=2) + "\n")
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=0) + "\n")


def write_checkpoint(out: Path, text: dict[str, Any], seed: int) -> None:
    """Writes the checkpoint of this text config, one tensor in memory at a time."""
    out.mkdir(parents=True, exist_ok=True)
    maker = Maker(text, seed)
    count = text["num_hidden_layers"] + 1
    shards: dict[str, list[Tensor]] = {}
    for number, tensors in enumerate(files(text), start=1):
        name = f"model-{number:05d}-of-{count:05d}.safetensors"
        shards[name] = tensors
        with (out / name).open("wb") as file:
            file.write(header_of(tensors))
            for tensor in tensors:
                file.write(maker.draw(tensor).data)
    write_index(out, text, shards)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--experts", choices=["mxfp4", "bf16"], default="mxfp4")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    text = text_config(**SHAPES[options.shape], mxfp4=options.experts == "mxfp4")
    write_checkpoint(options.out, text, options.seed)
    print(f"{options.out}: {text['num_hidden_layers']} layers, seed {options.seed}")


if __name__ == "__main__":
    main()
