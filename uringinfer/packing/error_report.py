"""The error report of a pack: what was lost in each tensor -> one line for each kind of tensor.

Tensors are cut into panels and records that any job converts in any order; sums are exact and in order of
execution, so the report of a pack is always the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from uringinfer.container.kind_errors import KindError
from uringinfer.packing.conversion import Squares
from uringinfer.packing.recipe import FLOATS

DIGITS = 6
"""Decimal places of a relative error: the last bits of a sum differ between processors."""

TYPICAL_ERRORS = {
    "fp8": 0.0264,
    "fp8_b64": 0.0264,
    "fp8_b32": 0.0263,
    "fp8_b16": 0.0261,
    "q8": 0.0065,
    "q8_g32": 0.0054,
    "mxfp4": 0.115,
    "q4": 0.103,
    "q4_g32": 0.086,
    "q8_0": 0.0054,
    "q4_0": 0.086,
    "ggml_mxfp4": 0.115,
    "q5_0": 0.043,
    "q5_1": 0.0379,
    "q4_1": 0.0782,
    "q4_k": 0.0783,
    "q5_k": 0.0381,
    "q6_k": 0.0193,
}
"""Relative Frobenius errors of quantising Gaussian weights: what a source lost before it came here. By
rounding to the nearest; a quantiser that also searches for better scales loses less in the K types."""


def summarise_errors(squares: Iterable[Squares]) -> tuple[KindError, ...]:
    """One line for each kind of tensor and pair of formats, in order of execution."""
    parts: defaultdict[Squares, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for part in squares:
        errors, norms = parts[Squares(part.tensor, part.kind, part.origin, part.format, 0, 0)]
        errors.append(part.error)
        norms.append(part.norm)
    kinds: defaultdict[tuple[str, str, str], list[tuple[float, str]]] = defaultdict(list)
    for tensor, (errors, norms) in parts.items():
        error = math.sqrt(math.fsum(errors) / (math.fsum(norms) or 1.0))
        kinds[tensor.kind, tensor.origin, tensor.format].append((error, tensor.tensor))
    return tuple(_kind_error(*names, tensors) for names, tensors in kinds.items())


def _kind_error(kind: str, origin: str, name: str, tensors: Sequence[tuple[float, str]]) -> KindError:
    worst, worst_tensor = max(tensors, key=lambda tensor: tensor[0])
    mean = math.fsum(error for error, _ in tensors) / len(tensors)
    worst = round(worst, DIGITS)
    return KindError(kind, origin, name, len(tensors), min(round(mean, DIGITS), worst), worst, worst_tensor)


def coming_notes(conversions: Mapping[tuple[str, str], int]) -> list[str]:
    """What was quantised before and would be again: of `Layout.conversions`."""
    return [
        f"would be quantised twice: {count} of {origin} ({_known(origin)}), as {name}"
        for (origin, name), count in conversions.items()
        if origin not in FLOATS and name not in FLOATS
    ]


def _known(origin: str) -> str:
    error = TYPICAL_ERRORS.get(origin)
    return f"about {error:.1%} off" if error else "how far off is not known"


def requantising_notes(errors: Sequence[KindError]) -> list[str]:
    """What was quantised before and is quantised again, with both errors."""
    pairs: defaultdict[tuple[str, str], list[KindError]] = defaultdict(list)
    for error in errors:
        if error.origin not in FLOATS and error.format not in FLOATS:
            pairs[error.origin, error.format].append(error)
    notes = []
    for (origin, name), group in pairs.items():
        count = sum(error.tensors for error in group)
        mean = math.fsum(error.mean * error.tensors for error in group) / count
        notes.append(
            f"quantised twice: {count} of {origin} ({_known(origin)}), as {name} ({mean:.1%} off that)"
        )
    return notes
