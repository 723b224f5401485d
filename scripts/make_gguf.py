"""Writes a mixture of experts as a GGUF file in parts, quantised as Q4_K_M is: Q4_K, and Q6_K for the head
and every other layer's values and down projections. The bytes are random, of the size that is asked for.

    python scripts/make_gguf.py OUT_DIRECTORY --size 4GB --part 1GB
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from uringinfer.units import format_size, parse_size

HIDDEN, INNER, EXPERTS, HEADS, GROUPS, HEAD_DIM, VOCAB = 2048, 768, 128, 32, 4, 128, 32_000
NAME = "mixture.gguf"


class Stuff:
    """Random bytes that tensors share: a writer keeps what it is given until all is written."""

    def __init__(self) -> None:
        largest = max(EXPERTS * INNER, VOCAB) * row_bytes(GGMLQuantizationType.Q6_K, HIDDEN)
        self._bytes = np.random.default_rng(0).integers(0, 256, largest, dtype=np.uint8)

    def quantised(self, kind: GGMLQuantizationType, *shape: int) -> np.ndarray:
        rows = (*shape[:-1], row_bytes(kind, shape[-1]))
        return self._bytes[: np.prod(rows)].reshape(rows)


def row_bytes(kind: GGMLQuantizationType, cols: int) -> int:
    block, nbytes = GGML_QUANT_SIZES[kind]
    return cols // block * nbytes


def write_mixture(directory: Path, nbytes: int, part_bytes: int) -> int:
    """Writes the parts of a model of about `nbytes`, each of about `part_bytes`; the bytes of all of them."""
    q4, q6 = GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K
    stuff = Stuff()
    layer_bytes = (
        EXPERTS * INNER * HIDDEN * (5 * GGML_QUANT_SIZES[q4][1] + GGML_QUANT_SIZES[q6][1]) // 2 // 256
    )
    layers = max(2, round(nbytes / layer_bytes))
    writer = gguf.GGUFWriter(directory / NAME, "qwen3moe", split_max_size=part_bytes)
    writer.add_block_count(layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(8)
    writer.add_expert_feed_forward_length(INNER)

    def matrix(name: str, kind: GGMLQuantizationType, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", stuff.quantised(kind, *shape), raw_dtype=kind)

    def ones(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))

    matrix("token_embd", q4, VOCAB, HIDDEN)
    matrix("output", q6, VOCAB, HIDDEN)
    ones("output_norm", HIDDEN)
    for layer in range(layers):
        own, finer = f"blk.{layer}", q6 if layer % 2 else q4
        for name, size in (("attn_norm", HIDDEN), ("ffn_norm", HIDDEN), ("attn_q_norm", HEAD_DIM)):
            ones(f"{own}.{name}", size)
        ones(f"{own}.attn_k_norm", HEAD_DIM)
        ones(f"{own}.ffn_gate_inp", EXPERTS, HIDDEN)
        matrix(f"{own}.attn_q", q4, HEADS * HEAD_DIM, HIDDEN)
        matrix(f"{own}.attn_k", q4, GROUPS * HEAD_DIM, HIDDEN)
        matrix(f"{own}.attn_v", finer, GROUPS * HEAD_DIM, HIDDEN)
        matrix(f"{own}.attn_output", q4, HIDDEN, HEADS * HEAD_DIM)
        matrix(f"{own}.ffn_gate_exps", q4, EXPERTS, INNER, HIDDEN)
        matrix(f"{own}.ffn_up_exps", q4, EXPERTS, INNER, HIDDEN)
        matrix(f"{own}.ffn_down_exps", finer, EXPERTS, HIDDEN, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sum(part.stat().st_size for part in directory.glob("*.gguf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--size", type=parse_size, default=4 * 10**9)
    parser.add_argument("--part", type=parse_size, default=10**9)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    nbytes = write_mixture(options.directory, options.size, options.part)
    print(f"{format_size(nbytes)} in {options.directory}")


if __name__ == "__main__":
    main()
