"""What a pack says of the tensors that were quantised before it."""

from __future__ import annotations

from collections.abc import Mapping

from uringinfer.kernels.ggml_formats import FORMAT_OF_TYPE
from uringinfer.packing.recipe import FLOATS

_TYPES = {form: name for name, form in FORMAT_OF_TYPE.items()}


def quantised_notes(formats: Mapping[tuple[str, str], int]) -> list[str]:
    """What stays packed and what becomes floats, by GGUF's type or the container's format: of
    `Layout.quantised`. What is quantised again is not told here, since that has a cost of its own to tell
    (`error_report`)."""
    kinds: dict[str, list[str]] = {}
    for (origin, form), count in sorted(formats.items(), key=lambda item: (-item[1], item[0])):
        kind = f"{count} of {_TYPES.get(origin, origin)}"
        if origin == form:
            kinds.setdefault("kept packed, bit for bit", []).append(kind)
        elif form in FLOATS:
            kinds.setdefault(f"decoded to {form}", []).append(kind)
    return [f"quantised tensors are {what}: {', '.join(kinds[what])}" for what in sorted(kinds, reverse=True)]
