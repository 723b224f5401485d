"""Which blocks of a layout belong to some of its layers, for a checkpoint that is packed in parts."""

from __future__ import annotations

from uringinfer.errors import UsageError
from uringinfer.packing.layout import Layout

LayerRange = tuple[int, int]
"""First and last layer, counted from zero."""


def blocks_of_layers(layout: Layout, layers: LayerRange) -> list[int]:
    """Indices of the blocks of these layers, ascending: their segments and the records of their experts. What
    comes before the first layer goes with it, what comes behind the last with that.

    Raises UsageError for layers that the model does not have.
    """
    manifest = layout.manifest
    owners = _owners([segment.group for segment in manifest.segments])
    owners += [bank.layer for bank in manifest.banks for _ in range(bank.num_experts)]
    first, last = layers
    if not 0 <= first <= last <= max(owners):
        raise UsageError(
            f"layers {first} to {last} were asked for and {manifest.family} has 0 to {max(owners)} here",
            hint="give --layers A-B within them",
        )
    return [index for index, owner in enumerate(owners) if first <= owner <= last]


def _owners(groups: list[str]) -> list[int]:
    """The layer that each segment goes with."""
    owners, layer = [], 0
    for group in groups:
        name, _, number = group.partition(".")
        layer = int(number) if name == "layers" else layer
        owners.append(layer)
    return owners
