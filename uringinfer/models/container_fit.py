"""Whether a container holds what its config says: every tensor there, none besides, each of its shape.

A manifest that is consistent in itself may still belong to another config, after a copy that mixed two
containers or a hand that edited one. Whatever a forward pass takes for granted is compared here, before
anything is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from uringinfer.container.manifest import Bank, Manifest, TensorPart
from uringinfer.errors import IntegrityError
from uringinfer.models.base import ExpertLayer, Model, TensorSpec

_SHOWN = 5


def check_fit(model: Model, manifest: Manifest) -> None:
    """Raises IntegrityError that names the first of `unfit` and says how many there are."""
    faults = list(unfit(model, manifest))
    if faults:
        more = len(faults) - _SHOWN
        shown = "; ".join(faults[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise IntegrityError(
            f"the container is not what its config says: {shown}", hint="copy it again, or pack again"
        )


def unfit(model: Model, manifest: Manifest) -> Iterator[str]:
    """A line for each tensor that is missing, surplus, out of place or misshapen, by what `model` says."""
    yield from _unfit_trunk(model, manifest)
    yield from _unfit_experts(model, manifest)


def _unfit_trunk(model: Model, manifest: Manifest) -> Iterator[str]:
    parts: dict[str, TensorPart] = {}
    panels: dict[str, int] = {}
    places: dict[str, tuple[str, bool]] = {}
    for segment in manifest.segments:
        for part in segment.parts:
            parts.setdefault(part.name, part)
            panels[part.name] = panels.get(part.name, 0) + 1
            places.setdefault(part.name, (segment.group, segment.streamed))
    wanted = [(group.name, spec) for group in model.trunk() for spec in group.tensors]
    names = [spec.name for _, spec in wanted]
    for group, spec in wanted:
        if spec.name in parts:
            yield from _unfit_tensor(spec, group, parts[spec.name], panels[spec.name], *places[spec.name])
        elif not spec.optional:
            yield f"tensor {spec.name} is missing"
    known = set(names)
    for name in parts:
        if name not in known:
            yield f"tensor {name} is none of {model.family}"
    order = [name for name in parts if name in known]
    for name, expected in zip(order, (name for name in names if name in parts), strict=True):
        if name != expected:
            yield f"tensor {name} comes where {expected} belongs"
            break


def _unfit_tensor(
    spec: TensorSpec, group: str, part: TensorPart, panels: int, where: str, streamed: bool
) -> Iterator[str]:
    if part.shape not in (spec.shape, *spec.other_shapes):
        yield f"tensor {spec.name} has the shape {list(part.shape)}, {list(spec.shape)} by config"
    if where != group:
        yield f"tensor {spec.name} lies in {where}, and belongs to {group}"
    if streamed == (spec.kind == "embedding"):
        yield f"tensor {spec.name} is {'streamed' if streamed else 'not streamed'}"
    if panels > 1 and (spec.whole or spec.kind == "vector"):
        yield f"tensor {spec.name} is cut into {panels} panels"


def _unfit_experts(model: Model, manifest: Manifest) -> Iterator[str]:
    banks = {bank.layer: bank for bank in manifest.banks}
    layers = {layer.layer: layer for layer in model.expert_layers()}
    for number in layers:
        if number not in banks:
            yield f"the experts of layer {number} are missing"
    for number, bank in banks.items():
        if number not in layers:
            yield f"layer {number} has no experts by config"
        else:
            yield from _unfit_bank(layers[number], bank)


def _unfit_bank(layer: ExpertLayer, bank: Bank) -> Iterator[str]:
    where = f"layer {bank.layer}"
    if bank.num_experts != layer.count:
        yield f"{where} has {bank.num_experts} experts, {layer.count} by config"
    found = {part.name: part.shape for part in bank.parts}
    wanted = {part.name: part.shape for part in layer.parts}
    for name, shape in wanted.items():
        if name not in found:
            yield f"{where}: expert tensor {name} is missing"
        elif found[name] != shape:
            yield f"{where}: expert tensor {name} has the shape {list(found[name])}, {list(shape)} by config"
    for name in found:
        if name not in wanted:
            yield f"{where}: expert tensor {name} is none of its experts"
