"""GGUF metadata and tensor names of the llama family -> a Hugging Face config and its tensor names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import IntegrityError, UnsupportedModelError
from uringinfer.layers.rotary import default_frequencies, llama3_frequencies

PERMUTED = {"llama"}
"""Architectures whose query and key rows GGUF stores in pairs (2i, 2i + 1) rather than in halves."""

ROTARY_FACTORS = "rope_freqs.weight"
"""The tensor that stands for Llama 3's scaling of rotary frequencies."""

_ARCHITECTURES = ("llama", "qwen2", "qwen3")

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")

# Llama 3.1 and 3.2 differ in the factor alone; GGUF keeps the outcome, a config keeps the settings
_LLAMA3_FACTORS = (8.0, 32.0)
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def checkpoint_name(name: str) -> str:
    """The name that a Hugging Face checkpoint gives the GGUF tensor `name`; unknown names stay."""
    stem, _, kind = name.rpartition(".")
    if stem in _NAMES:
        return f"{_NAMES[stem]}.{kind}"
    match = _LAYER.fullmatch(name)
    if match and match[2] in _LAYER_NAMES:
        return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}"
    return name


@dataclass(frozen=True, slots=True)
class Metadata:
    """Typed look-up in a GGUF file's metadata. Raises IntegrityError naming a key that is missing or is not
    of its type; keys with a leading dot are of the file's architecture."""

    path: Path
    values: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        """The supported architecture of the file; UnsupportedModelError if it is another."""
        name = self.text("general.architecture")
        if name not in _ARCHITECTURES:
            raise UnsupportedModelError(
                f"{self.path}: GGUF architecture {name!a}",
                hint=f"supported in GGUF: {', '.join(_ARCHITECTURES)}; use the safetensors checkpoint",
            )
        return name

    def _get(self, key: str) -> Any:
        full = self.architecture + key if key.startswith(".") else key
        return self.values.get(full)

    def _wrong(self, key: str, value: Any, kind: str) -> IntegrityError:
        problem = "is missing" if value is None else f"is {str(value)[:40]!a}, not {kind}"
        return IntegrityError(f"{self.path}: metadata {key.lstrip('.')} {problem}")

    def integer(self, key: str, default: int | None = None) -> int:
        """A number of at least 1."""
        value = self._get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or value < 1:
            raise self._wrong(key, value, "a positive integer")
        return value

    def index(self, key: str) -> int | None:
        """The number of a token, or None."""
        value = self._get(key)
        if value is not None and (type(value) is not int or value < 0):
            raise self._wrong(key, value, "the number of a token")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """A finite number; a float32 is read as the shortest decimal that gives it, as configs write it."""
        value = self._get(key)
        if value is None and default is not None:
            return default
        if type(value) not in (int, float) or not np.isfinite(value):
            raise self._wrong(key, value, "a number")
        return float(str(np.float32(value)))

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not str:
            raise self._wrong(key, value, "a text")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key)
        if value is not None and type(value) is not bool:
            raise self._wrong(key, value, "true or false")
        return default if value is None else value

    def items(self, key: str, kind: type) -> list[Any]:
        """A list whose elements are all of `kind`."""
        value = self._get(key)
        if type(value) is not list or not all(type(item) is kind for item in value):
            raise self._wrong(key, value, f"a list of {kind.__name__}")
        return value


def make_config(
    metadata: Metadata, shapes: Mapping[str, tuple[int, ...]], rotary_factors: NDArray[np.float32] | None
) -> dict[str, Any]:
    """The config.json that these metadata describe.

    `shapes` gives the checkpoint's tensors by Hugging Face names; `rotary_factors` float32 [head_dim / 2] is
    what `ROTARY_FACTORS` holds, if the file has it. Raises UnsupportedModelError for what no config of these
    families says.
    """
    family = metadata.architecture
    if metadata.values.get(f"{family}.expert_count"):
        raise UnsupportedModelError(
            f"{metadata.path}: a GGUF file with experts", hint="use the safetensors checkpoint"
        )
    embedding = shapes.get("model.embed_tokens.weight")
    if embedding is None or len(embedding) != 2:
        raise IntegrityError(f"{metadata.path}: holds no token_embd.weight")
    hidden, heads = metadata.integer(".embedding_length"), metadata.integer(".attention.head_count")
    head_dim = metadata.integer(".attention.key_length", hidden // heads)
    theta = metadata.real(".rope.freq_base", 10000.0)
    config = {
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": metadata.integer(".feed_forward_length"),
        "num_hidden_layers": metadata.integer(".block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.integer(".attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab_size": embedding[0],
        "max_position_embeddings": metadata.integer(".context_length"),
        "rms_norm_eps": metadata.real(".attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "hidden_act": "silu",
        "tie_word_embeddings": "lm_head.weight" not in shapes,
        "torch_dtype": "bfloat16",
    }
    if family == "llama":
        config["attention_bias"] = "model.layers.0.self_attn.q_proj.bias" in shapes
    scaling = _rope_scaling(metadata, theta, head_dim, rotary_factors)
    if scaling is not None:
        config["rope_scaling"] = scaling
    for key, name in (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")):
        token = metadata.index(f"tokenizer.ggml.{name}_token_id")
        if token is not None:
            config[key] = token
    return config


def _rope_scaling(
    metadata: Metadata, theta: float, head_dim: int, factors: NDArray[np.float32] | None
) -> dict[str, Any] | None:
    if factors is not None:
        return _llama3_scaling(metadata.path, theta, head_dim, factors)
    kind = metadata.text(f"{metadata.architecture}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise UnsupportedModelError(
            f"{metadata.path}: rotary scaling {kind!a}", hint="linear and yarn are known"
        )
    scaling: dict[str, Any] = {"rope_type": kind, "factor": metadata.real(".rope.scaling.factor")}
    if kind == "yarn":
        original = metadata.integer(".rope.scaling.original_context_length")
        scaling["original_max_position_embeddings"] = original
    return scaling


def _llama3_scaling(path: Path, theta: float, head_dim: int, factors: NDArray[np.float32]) -> dict[str, Any]:
    """The settings that give these factors of the frequencies."""
    plain = default_frequencies(theta, head_dim)
    for factor in _LLAMA3_FACTORS:
        scaled = llama3_frequencies(
            plain,
            factor=factor,
            low_freq_factor=_LLAMA3["low_freq_factor"],
            high_freq_factor=_LLAMA3["high_freq_factor"],
            original=int(_LLAMA3["original_max_position_embeddings"]),
        )
        if factors.shape == plain.shape and np.allclose(plain / scaled, factors, rtol=1e-4):
            return {"rope_type": "llama3", "factor": factor, **_LLAMA3}
    raise UnsupportedModelError(
        f"{path}: rotary frequencies scaled in a way that is not Llama 3's",
        hint="use the safetensors checkpoint",
    )
