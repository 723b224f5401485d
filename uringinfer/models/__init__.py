"""Model families by name. One file a family; `model_from_config` finds it by the config's `model_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uringinfer.errors import UnsupportedModelError, UsageError
from uringinfer.models import (
    deepseek,
    glm4_moe,
    gpt_oss,
    granitemoe,
    kimi_k3,
    kimi_linear,
    llama,
    mistral,
    mixtral,
    olmoe,
    qwen2,
    qwen3,
    qwen_moe,
    smollm3,
)
from uringinfer.models.base import Model
from uringinfer.models.experts import TOP_K_KEYS

_FAMILIES: Mapping[str, Callable[[Mapping[str, Any]], Model]] = {
    "deepseek_v2": deepseek.build_deepseek_v2,
    "deepseek_v3": deepseek.build_deepseek_v3,
    "glm4_moe": glm4_moe.build,
    "glm4_moe_lite": deepseek.build_glm4_moe_lite,
    "gpt_oss": gpt_oss.build,
    "granitemoe": granitemoe.build,
    "kimi_k2": deepseek.build_kimi_k2,
    "kimi_k3": kimi_k3.build,
    "kimi_linear": kimi_linear.build,
    "llama": llama.build,
    "mistral": mistral.build,
    "mixtral": mixtral.build,
    "olmoe": olmoe.build,
    "qwen2": qwen2.build,
    "qwen2_moe": qwen_moe.build_qwen2_moe,
    "qwen3": qwen3.build,
    "qwen3_moe": qwen_moe.build_qwen3_moe,
    "smollm3": smollm3.build,
}


def supported_families() -> tuple[str, ...]:
    """Every `model_type` that `model_from_config` accepts, sorted."""
    return tuple(sorted(_FAMILIES))


def model_from_config(config: Mapping[str, Any], *, experts_per_token: int | None = None) -> Model:
    """The model that a checkpoint's config.json describes.

    `experts_per_token` overrides how many experts each token takes, which changes the answers. Raises
    UnsupportedModelError if the family is unknown, or if a key of the config is one that the family cannot
    honour; UsageError if there are not so many experts.
    """
    family = config.get("model_type")
    if not isinstance(family, str) or family not in _FAMILIES:
        named = ascii(family[:60]) if isinstance(family, str) else "missing"
        raise UnsupportedModelError(
            f"model_type is {named}", hint=f"supported families: {', '.join(supported_families())}"
        )
    model = _FAMILIES[family](config)
    if experts_per_token is None:
        return model
    count = min((layer.count for layer in model.expert_layers()), default=0)
    if not 1 <= experts_per_token <= count:
        raise UsageError(
            f"{experts_per_token} experts per token cannot be had: {family} has {count} in a layer",
            hint=f"choose 1 to {count}" if count else "leave the option out",
        )
    return _FAMILIES[family]({**config, **dict.fromkeys(TOP_K_KEYS, experts_per_token)})
