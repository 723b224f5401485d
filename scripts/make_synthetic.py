"""Makes checkpoints of random bf16 weights in the layout of a published one, at disk speed.

The weights are zero-mean with a standard deviation of 1/sqrt(columns), embeddings of 1, norms are ones; the
caller may multiply deviations. Logits stay finite at any depth. Values come from one pool of normal noise,
copied in pieces from random offsets, so that neither a drive nor a file system can compress or deduplicate
much of it. The same arguments give the same bytes.

    python scripts/make_synthetic.py OUT --size 4GB
    python scripts/make_synthetic.py OUT --layers 4 --hidden 256 --intermediate 768 --heads 4 --kv-heads 2
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from uringinfer.units import format_size, parse_size

Shapes = dict[str, tuple[int, ...]]
POOL_VALUES = 1 << 24
PIECE_VALUES = 1 << 21


def llama_config(
    *,
    layers: int = 16,
    hidden: int = 2048,
    intermediate: int = 8192,
    heads: int = 32,
    kv_heads: int = 8,
    vocab: int = 32000,
    tied: bool = False,
) -> dict[str, Any]:
    """A config.json of the llama family with these dimensions."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "vocab_size": vocab,
        "max_position_embeddings": 8192,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }


def llama_tensors(config: Mapping[str, Any]) -> Shapes:
    """The shape of every tensor of such a checkpoint, by its published name."""
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes: Shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (queries, hidden),
            f"{prefix}.self_attn.k_proj.weight": (keys, hidden),
            f"{prefix}.self_attn.v_proj.weight": (keys, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, queries),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.mlp.gate_proj.weight": (intermediate, hidden),
            f"{prefix}.mlp.up_proj.weight": (intermediate, hidden),
            f"{prefix}.mlp.down_proj.weight": (hidden, intermediate),
        }
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def nbytes_of(shapes: Shapes) -> int:
    """Bytes of all tensors in bf16."""
    return sum(2 * int(np.prod(shape)) for shape in shapes.values())


def layers_for_size(nbytes: int, **dimensions: Any) -> int:
    """How many layers of these `dimensions` (see `llama_config`) come closest to `nbytes`; at least one."""
    one = nbytes_of(llama_tensors(llama_config(layers=1, **dimensions)))
    two = nbytes_of(llama_tensors(llama_config(layers=2, **dimensions)))
    return max(1, 1 + round((nbytes - one) / (two - one)))


class Noise:
    """Zero-mean bf16 noise of any standard deviation, cut from one pool of normal values."""

    def __init__(self, seed: int, pool_values: int = POOL_VALUES) -> None:
        self._rng = np.random.default_rng(seed)
        self._pool = self._rng.standard_normal(pool_values, dtype=np.float32)
        self._scaled: dict[float, np.ndarray] = {}

    def pieces(self, count: int, deviation: float) -> Iterator[np.ndarray]:
        """uint16 arrays that together hold `count` bf16 values."""
        if deviation not in self._scaled:
            bits = (self._pool * np.float32(deviation)).view(np.uint32)
            self._scaled[deviation] = ((bits + 0x8000) >> 16).astype(np.uint16)
        pool = self._scaled[deviation]
        longest = min(PIECE_VALUES, len(pool) // 2)
        while count > 0:
            length = min(count, longest)
            start = int(self._rng.integers(len(pool) - length + 1))
            yield pool[start : start + length]
            count -= length


def shard(shapes: Shapes, shard_bytes: int) -> list[Shapes]:
    """`shapes` in order, cut into shards of at most `shard_bytes` (or one tensor)."""
    shards: list[Shapes] = [{}]
    for name, shape in shapes.items():
        if shards[-1] and nbytes_of(shards[-1]) + nbytes_of({name: shape}) > shard_bytes:
            shards.append({})
        shards[-1][name] = shape
    return shards


def write_checkpoint(
    directory: Path,
    config: Mapping[str, Any],
    shapes: Shapes,
    *,
    shard_bytes: int = 1 << 30,
    seed: int = 0,
    gains: Mapping[str, float] | None = None,
) -> int:
    """Writes config.json, safetensors shards and their index into `directory`; returns the tensors' bytes.

    `gains` multiplies the deviation of the matrices whose names have one of its keys in them.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    noise = Noise(seed, min(POOL_VALUES, max(1 << 16, nbytes_of(shapes))))
    shards = shard(shapes, shard_bytes)
    weight_map = {}
    for number, tensors in enumerate(shards, start=1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_shard(directory / name, tensors, noise, gains or {})
        weight_map |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": nbytes_of(shapes)}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    return nbytes_of(shapes)


def _write_shard(path: Path, shapes: Shapes, noise: Noise, gains: Mapping[str, float]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + nbytes_of({name: shape})
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            gain = next((gain for part, gain in gains.items() if part in name), 1.0)
            for piece in _values(name, shape, noise, gain):
                file.write(piece.data)


def _values(name: str, shape: tuple[int, ...], noise: Noise, gain: float) -> Iterator[np.ndarray]:
    count = int(np.prod(shape))
    if len(shape) == 1:
        fill = 0x3F80 if name.endswith("norm.weight") else 0  # bf16 1.0 for norms, 0 for biases
        yield np.full(count, fill, np.uint16)
    else:
        yield from noise.pieces(count, gain * (1.0 if "embed_tokens" in name else shape[-1] ** -0.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=parse_size, help="bytes of weights; chooses the number of layers")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--intermediate", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--tied", action="store_true", help="no lm_head: the embedding serves as the head")
    parser.add_argument("--shard-size", type=parse_size, default=1 << 30)
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    out, size = options.pop("out"), options.pop("size")
    shard_bytes, seed = options.pop("shard_size"), options.pop("seed")
    if size is not None:
        del options["layers"]
        options["layers"] = layers_for_size(size, **options)
    config = llama_config(**options)
    nbytes = write_checkpoint(out, config, llama_tensors(config), shard_bytes=shard_bytes, seed=seed)
    print(f"{out}: {config['num_hidden_layers']} layers, {format_size(nbytes)} of bf16 weights")


if __name__ == "__main__":
    main()
