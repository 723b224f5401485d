"""What a container holds, in numbers: sizes, formats, layers, tensors, and what one token costs to read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from uringinfer.container.container import Container
from uringinfer.container.kind_errors import KindError
from uringinfer.container.manifest import Manifest


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group of the trunk (a layer, the head), with the routed experts of the same layer. Bytes."""

    name: str
    segments: int
    tensors: int
    nbytes: int
    streamed: bool
    experts: int
    record_bytes: int


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """One tensor of the trunk, or of every expert of a layer; `nbytes` and `panels` of one."""

    name: str
    format: str
    shape: tuple[int, ...]
    nbytes: int
    panels: int
    where: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A container in numbers. Sizes in bytes; `formats` gives the bytes of weights in each format."""

    path: str
    family: str
    source: Mapping[str, Any]
    fingerprint: str
    parameters: int
    nbytes: int
    streamed_bytes: int
    table_bytes: int
    bank_bytes: int
    file_bytes: int
    bytes_per_token: int
    """Read for each token when nothing is in memory: the streamed trunk, and the experts it is routed to."""
    segments: int
    largest_segment_bytes: int
    banks: int
    experts: int
    experts_per_token: int
    largest_record_bytes: int
    formats: Mapping[str, int]
    errors: tuple[KindError, ...]
    """What changing formats cost when the model was packed; empty if nothing changed."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def summarise(container: Container, experts_per_token: int = 0) -> Summary:
    """The numbers of `container`; each token uses `experts_per_token` experts of every bank."""
    banks = tuple(container.banks.values())
    file_bytes = sum(file.nbytes for file in container.manifest.files)
    streamed = container.streamed_segments
    return Summary(
        path=str(container.path),
        family=container.manifest.family,
        source=container.manifest.source,
        fingerprint=container.fingerprint,
        parameters=_parameters(container),
        nbytes=container.streamed_bytes + container.table_bytes + container.bank_bytes + file_bytes,
        streamed_bytes=container.streamed_bytes,
        table_bytes=container.table_bytes,
        bank_bytes=container.bank_bytes,
        file_bytes=file_bytes,
        bytes_per_token=container.streamed_bytes
        + experts_per_token * sum(bank.record_bytes for bank in banks),
        segments=len(container.segments),
        largest_segment_bytes=max((segment.nbytes for segment in streamed), default=0),
        banks=len(banks),
        experts=sum(bank.num_experts for bank in banks),
        experts_per_token=experts_per_token,
        largest_record_bytes=max((bank.record_bytes for bank in banks), default=0),
        formats=bytes_by_format(container.manifest),
        errors=container.manifest.errors,
    )


def groups(container: Container) -> list[GroupSummary]:
    """The groups of the trunk in order of execution. A bank is named by the group `layers.N`."""
    result = []
    banks = {f"layers.{layer}": bank for layer, bank in container.banks.items()}
    for name in dict.fromkeys(segment.group for segment in container.segments):
        segments = [segment for segment in container.segments if segment.group == name]
        bank = banks.get(name)
        result.append(
            GroupSummary(
                name=name,
                segments=len(segments),
                tensors=len({part.name for segment in segments for part in segment.parts}),
                nbytes=sum(segment.nbytes for segment in segments),
                streamed=any(segment.streamed for segment in segments),
                experts=bank.num_experts if bank else 0,
                record_bytes=bank.record_bytes if bank else 0,
            )
        )
    return result


def tensors(container: Container) -> list[TensorSummary]:
    """Every tensor of the trunk in order of execution, then those of the experts, one line for a layer."""
    result = [
        TensorSummary(
            name=name,
            format=places[0].part.format.name,
            shape=places[0].part.shape,
            nbytes=sum(place.part.nbytes for place in places),
            panels=len(places),
            where=places[0].segment.name,
        )
        for name, places in container.tensors.items()
    ]
    for layer, bank in container.banks.items():
        for part in bank.parts:
            name, where = (
                f"layers.{layer}.experts.*.{part.name}",
                f"{bank.num_experts} records of {bank.file}",
            )
            result.append(TensorSummary(name, part.format.name, part.shape, part.nbytes, 1, where))
    return result


def _parameters(container: Container) -> int:
    trunk = sum(math.prod(places[0].part.shape) for places in container.tensors.values())
    experts = sum(
        bank.num_experts * math.prod(part.shape) for bank in container.banks.values() for part in bank.parts
    )
    return trunk + experts


def bytes_by_format(manifest: Manifest) -> dict[str, int]:
    """Bytes of weights in each format, most first."""
    counts: Counter[str] = Counter()
    for segment in manifest.segments:
        for part in segment.parts:
            counts[part.format.name] += part.nbytes
    for bank in manifest.banks:
        for part in bank.parts:
            counts[part.format.name] += part.nbytes * bank.num_experts
    return dict(counts.most_common())
