"""Model families by name. One file a family; `model_from_config` finds it by the config's `model_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uringinfer.errors import UnsupportedModelError
from uringinfer.models import llama, mistral, qwen2, qwen3, smollm3
from uringinfer.models.base import Model

_FAMILIES: Mapping[str, Callable[[Mapping[str, Any]], Model]] = {
    "llama": llama.build,
    "mistral": mistral.build,
    "qwen2": qwen2.build,
    "qwen3": qwen3.build,
    "smollm3": smollm3.build,
}


def supported_families() -> tuple[str, ...]:
    """Every `model_type` that `model_from_config` accepts, sorted."""
    return tuple(sorted(_FAMILIES))


def model_from_config(config: Mapping[str, Any]) -> Model:
    """The model that a checkpoint's config.json describes.

    Raises UnsupportedModelError if the family is unknown, or if a key of the config is one that the family
    cannot honour.
    """
    family = config.get("model_type")
    if not isinstance(family, str) or family not in _FAMILIES:
        named = f"'{family}'" if isinstance(family, str) else "missing"
        raise UnsupportedModelError(
            f"model_type is {named}", hint=f"supported families: {', '.join(supported_families())}"
        )
    return _FAMILIES[family](config)
