"""Typed look-up in the metadata of a GGUF file that remembers what was looked at.

The rule of config keys holds here too: a key of the file's architecture is honoured, known to be harmless, or
refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from uringinfer.errors import IntegrityError, UnsupportedModelError
from uringinfer.packing.gguf_names import NAMES

_HARMLESS = """
    vocab_size tensor_data_layout rope.scaling.finetuned pooling_type decoder_start_token_id
    attention.layer_norm_epsilon
"""
HARMLESS = frozenset(_HARMLESS.split())
"""Keys of an architecture that say nothing about its arithmetic."""

_NEUTRAL: Mapping[str, Any] = {
    "attention.causal": True,
    "expert_group_count": 1,
    "expert_group_used_count": 1,
    "expert_weights_scale": 1.0,
    "hidden_act": "silu",
    "logit_scale": 1.0,
    "interleave_moe_layer_step": 1,
    "moe_every_n_layers": 1,
    "rope.scale_linear": 1.0,
}
"""Values that switch nothing on, of keys that not every architecture reads."""

_REFUSED = {
    "adapter": "a LoRA adapter",
    "mmproj": "the vision part of a model",
    "imatrix": "an importance matrix",
    "vocab": "a vocabulary alone",
}
"""What a file holds instead of a model, by general.type or the first word of its keys."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Look-up by key; those with a leading dot are of the file's architecture. Raises IntegrityError naming a
    key that is missing or is not of its type."""

    path: Path
    values: Mapping[str, Any]
    _read: set[str] = field(default_factory=set, compare=False)

    @property
    def architecture(self) -> str:
        """The supported architecture of the file; UnsupportedModelError if it is another, or no model."""
        kind = self.values.get("general.type", "model")
        first_words = {key.partition(".")[0] for key in self.values}
        other = next((word for word in _REFUSED if word == kind or word in first_words), None)
        if other is not None:
            raise UnsupportedModelError(
                f"{self.path}: holds {_REFUSED[other]}, no model", hint="name the model's own file"
            )
        name = self.text("general.architecture")
        if name not in NAMES:
            raise UnsupportedModelError(
                f"{self.path}: GGUF architecture {name!a}",
                hint=f"supported in GGUF: {', '.join(NAMES)}; use the safetensors checkpoint",
            )
        return name

    def _get(self, key: str) -> Any:
        full = self.text("general.architecture") + key if key.startswith(".") else key
        self._read.add(full)
        return self.values.get(full)

    def _wrong(self, key: str, value: Any, kind: str) -> IntegrityError:
        problem = "is missing" if value is None else f"is {str(value)[:40]!a}, not {kind}"
        return IntegrityError(f"{self.path}: metadata {key.lstrip('.')} {problem}")

    def refuse(self, key: str, wanted: str) -> UnsupportedModelError:
        """The error for a key of the architecture whose value is not what is `wanted`; to be raised."""
        value, name = str(self._get(key)), f"{self.text('general.architecture')}{key}"
        shown = name if name.isascii() and name.isprintable() else ascii(name)
        return UnsupportedModelError(
            f"{self.path}: metadata {shown[:120]} is {value[:40]!a}",
            hint=f"this model needs {wanted}",
        )

    def has(self, key: str) -> bool:
        return self._get(key) is not None

    def integer(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """A number of at least `minimum`."""
        value = self._get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or value < minimum:
            raise self._wrong(key, value, f"an integer of at least {minimum}")
        return value

    def integers(self, key: str) -> list[int]:
        """A list of numbers, none negative; one number is a list of one."""
        value = self._get(key)
        values = value if isinstance(value, list) else [value]
        if not all(type(item) is int and item >= 0 for item in values):
            raise self._wrong(key, value, "a list of numbers")
        return values

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
        self._read.add(key)
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

    def finish(self) -> None:
        """Refuses by name a key of the architecture that nobody looked at, unless it is harmless or its value
        switches nothing on."""
        architecture = self.architecture
        for full, value in self.values.items():
            if not full.startswith(f"{architecture}.") or full in self._read:
                continue
            key = full.removeprefix(architecture)
            neutral = _NEUTRAL.get(key[1:])
            harmless = key[1:] in HARMLESS or (neutral is not None and value == neutral)
            if not harmless and (key == ".attention.causal" or value not in (0, False, "", [])):
                raise self.refuse(key, "it to be absent: it is not known to be harmless")
