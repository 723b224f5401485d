"""How often each routed expert was used, over runs: usage.json in the container.

The counts decide which experts fill the cache at the start and how the memory is divided, and with how good
guesses were, what `plan` predicts. They change no answer, so a file that is damaged or belongs to another
model is left out with a note, never an error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.residency.policies import ExpertKey
from uringinfer.storage.regular import read_regular, replacing

USAGE_FILE = "usage.json"
"""Its name in the container's directory."""
USAGE_HINT = "leave --learn out, or make it writable"
_VERSION = 1
_NO_GUESSES = {"about": 0, "named": 0}
"""Of a file that was written before guesses were counted."""


class UsageCounts:
    """Uses of `num_experts` experts in each of `layers`, in order of execution.

    Of `guessed_about` experts in turns that had been guessed about, the early ones had named `named`.
    """

    def __init__(self, layers: Sequence[int], num_experts: int) -> None:
        self.layers = tuple(layers)
        self.counts: NDArray[np.int64] = np.zeros((len(self.layers), num_experts), np.int64)
        self.guessed_about = 0
        self.named = 0
        self._place = {layer: place for place, layer in enumerate(self.layers)}

    def add(self, layer: int, routed: NDArray[np.int64]) -> None:
        """Counts the choices of one turn, [T, K]."""
        self.counts[self._place[layer]] += np.bincount(routed.reshape(-1), minlength=self.counts.shape[1])

    @property
    def recall(self) -> float | None:
        """Share of the experts in turns guessed about that early guesses had named; None without."""
        return self.named / self.guessed_about if self.guessed_about else None

    def most_used(self) -> list[ExpertKey]:
        """Every expert that was used, the most used first, ties in order of execution."""
        order = np.argsort(-self.counts.reshape(-1), kind="stable")
        width = self.counts.shape[1]
        used = int(np.count_nonzero(self.counts))
        return [(self.layers[place // width], place % width) for place in order[:used].tolist()]

    def to_json(self, fingerprint: str) -> str:
        layers = {str(layer): row.tolist() for layer, row in zip(self.layers, self.counts, strict=True)}
        guesses = {"about": self.guessed_about, "named": self.named}
        return json.dumps(
            {"version": _VERSION, "container": fingerprint, "layers": layers, "guesses": guesses}
        )


def read_usage(
    directory: Path, fingerprint: str, layers: Sequence[int], num_experts: int
) -> tuple[UsageCounts | None, str | None]:
    """The counts in `directory`, or None; and a note if there is a file that cannot be used."""
    path = directory / USAGE_FILE
    try:
        content = json.loads(read_regular(path).decode())
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, RecursionError, IntegrityError) as error:
        return None, f"{path} is left out: it cannot be read ({error})"
    usage = UsageCounts(layers, num_experts)
    problem = _problem(content, fingerprint, usage)
    if problem is not None:
        return None, f"{path} is left out: {problem}"
    for place, layer in enumerate(usage.layers):
        usage.counts[place] = content["layers"][str(layer)]
    guesses = content.get("guesses", _NO_GUESSES)
    usage.guessed_about, usage.named = guesses["about"], guesses["named"]
    return usage, None


def write_usage(directory: Path, fingerprint: str, usage: UsageCounts) -> None:
    """Writes the counts, whole or not at all. Raises EnvironmentError_ if `directory` cannot be written."""
    path = directory / USAGE_FILE
    try:
        with replacing(path) as file:
            file.write(usage.to_json(fingerprint).encode())
    except OSError as error:
        raise EnvironmentError_(f"cannot write {path}: {error.strerror}", hint=USAGE_HINT) from None


def _problem(content: Any, fingerprint: str, usage: UsageCounts) -> str | None:
    """What is wrong with the content of a usage file, in words; None if nothing is."""
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        return "it is of another version or no usage file"
    if content.get("container") != fingerprint:
        return "it belongs to another model, or to another packing of this one"
    layers = content.get("layers")
    if not isinstance(layers, dict) or set(layers) != {str(layer) for layer in usage.layers}:
        return "its layers are not those of the model"
    width = usage.counts.shape[1]
    for row in layers.values():
        if not isinstance(row, list) or len(row) != width:
            return f"a layer has not {width} counts"
        if not all(map(_is_count, row)):
            return "a count is no count"
    guesses = content.get("guesses", _NO_GUESSES)
    if not isinstance(guesses, dict) or not all(_is_count(guesses.get(name)) for name in _NO_GUESSES):
        return "its guesses are no counts"
    if guesses["named"] > guesses["about"]:
        return "it has more right guesses than guesses"
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 60
