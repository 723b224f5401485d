"""GGUF's rotary keys -> the rotary settings of a config, or a refusal by name.

llama.cpp multiplies cosine and sine by `rope.scaling.attn_factor` whatever the kind of scaling; with YaRN, by
YaRN's own magnitude besides. A factor without a type scales linearly, as the old `rope.scale_linear` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import UnsupportedModelError
from uringinfer.layers.rotary import default_frequencies, llama3_frequencies, yarn_magnitude
from uringinfer.packing.gguf_metadata import Metadata

# Llama 3.1 and 3.2 differ in the factor alone; GGUF keeps the outcome, a config keeps the settings
_LLAMA3_FACTORS = (8.0, 32.0)
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_SCALING = ".rope.scaling."
_YARN_ONLY = ("yarn_beta_fast", "yarn_beta_slow", "yarn_ext_factor", "original_context_length")
_LOG_MULTIPLIER = f"{_SCALING}yarn_log_multiplier"


def rotated_channels(metadata: Metadata, head_dim: int, *, partial: bool = False) -> int:
    """The channels of a head that are rotated. Raises UnsupportedModelError if not all of them are, unless
    `partial`."""
    channels = metadata.integer(".rope.dimension_count", head_dim)
    if channels > head_dim or (channels != head_dim and not partial):
        raise metadata.refuse(".rope.dimension_count", f"whole heads of {head_dim} channels to be rotated")
    return channels


def rope_scaling(
    metadata: Metadata, theta: float, channels: int, factors: NDArray[np.float32] | None
) -> dict[str, Any] | None:
    """The `rope_scaling` of a config; None for none. `channels` of a head are rotated; `factors` float32
    [channels / 2] is what `gguf_names.ROTARY_FACTORS` holds, if the file has it."""
    kind, factor = _kind_and_factor(metadata)
    multiplier = metadata.real(f"{_SCALING}attn_factor", 1.0)
    multiplier *= metadata.real(f"{_SCALING}yarn_attn_factor", 1.0)
    if kind == "yarn":
        if factors is not None:
            raise metadata.refuse(f"{_SCALING}type", "no scaling besides that of its rotary frequencies")
        return _yarn(metadata, factor, multiplier)
    if multiplier != 1.0:
        raise metadata.refuse(f"{_SCALING}attn_factor", "1: only YaRN scales cosine and sine")
    for key in (*_YARN_ONLY, "yarn_log_multiplier"):
        metadata.has(_SCALING + key)  # says nothing without YaRN
    if factors is not None:
        if kind == "linear":
            raise metadata.refuse(f"{_SCALING}type", "no scaling besides that of its rotary frequencies")
        return _llama3(metadata.path, theta, channels, factors)
    return {"rope_type": "linear", "factor": factor} if kind == "linear" else None


def _kind_and_factor(metadata: Metadata) -> tuple[str, float]:
    """The kind of scaling, 'none', 'linear' or 'yarn', and its factor."""
    key = f"{metadata.architecture}{_SCALING}type"
    factor = metadata.real(f"{_SCALING}factor", 0.0) or metadata.real(".rope.scale_linear", 1.0)
    metadata.has(".rope.scale_linear")  # the newer key goes before it
    kind = metadata.text(key, "linear")
    if kind not in ("none", "linear", "yarn"):
        raise UnsupportedModelError(
            f"{metadata.path}: rotary scaling {kind!a}", hint="linear and yarn are known"
        )
    if factor <= 0:
        raise metadata.refuse(f"{_SCALING}factor", "a number above 0")
    return ("none" if factor == 1.0 and kind == "linear" else kind), factor


def _yarn(metadata: Metadata, factor: float, multiplier: float) -> dict[str, Any]:
    if metadata.real(f"{_SCALING}yarn_ext_factor", 1.0) not in (1.0, -1.0):
        raise metadata.refuse(f"{_SCALING}yarn_ext_factor", "1: YaRN's ramp whole")
    scaling: dict[str, Any] = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": metadata.integer(
            f"{_SCALING}original_context_length", metadata.integer(".context_length")
        ),
    }
    for key in ("beta_fast", "beta_slow"):
        if metadata.has(f"{_SCALING}yarn_{key}"):
            scaling[key] = metadata.real(f"{_SCALING}yarn_{key}")
    if metadata.architecture == "gpt-oss":
        scaling["truncate"] = False  # as its config says; GGUF has no key for it
    logarithm = metadata.real(_LOG_MULTIPLIER, 0.0)
    if logarithm and metadata.architecture == "deepseek2":
        if multiplier != 1.0:
            raise metadata.refuse(f"{_SCALING}attn_factor", f"1 beside {_LOG_MULTIPLIER[1:]}")
        # the converter writes a tenth of mscale_all_dim; mscale is the same in all that it is written for
        scaling["mscale"] = scaling["mscale_all_dim"] = round(10 * logarithm, 6)
    elif logarithm:
        raise metadata.refuse(_LOG_MULTIPLIER, "it to be absent: it belongs to latent attention")
    elif multiplier != 1.0:
        scaling["attention_factor"] = multiplier * yarn_magnitude(factor)
    return scaling


def _llama3(path: Path, theta: float, channels: int, factors: NDArray[np.float32]) -> dict[str, Any]:
    """The settings that give these factors of the frequencies."""
    count = channels // 2 if factors.size == channels // 2 else 0  # the file may name any number of channels
    plain = default_frequencies(theta, 2 * count)
    for factor in _LLAMA3_FACTORS:
        scaled = llama3_frequencies(
            plain,
            factor=factor,
            low_freq_factor=_LLAMA3["low_freq_factor"],
            high_freq_factor=_LLAMA3["high_freq_factor"],
            original=int(_LLAMA3["original_max_position_embeddings"]),
        )
        if count and np.allclose(plain / scaled, factors, rtol=1e-4):
            return {"rope_type": "llama3", "factor": factor, **_LLAMA3}
    raise UnsupportedModelError(
        f"{path}: rotary frequencies scaled in a way that is not Llama 3's",
        hint="use the safetensors checkpoint",
    )
