"""The manifest of a container: what every byte in it means, and how it is written.

Its last line carries the CRC32 of every byte before it, so that damage to the manifest itself is found as
well. `manifest_reader` reads it back.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from uringinfer.container.kind_errors import KindError
from uringinfer.container.sharding import Sharding
from uringinfer.kernels.weight_format import WeightFormat

FORMAT_VERSION = 2
MANIFEST_NAME = "manifest.json"
ALIGNMENT = 4096
"""Segments and records start at multiples of this and are padded to it."""
CHECKSUM_KEY = "manifest_crc32"
CHECKSUM_LINE = '"' + CHECKSUM_KEY + '": "{:08x}"\n}}\n'
"""The last line, to be given the checksum."""


@dataclass(frozen=True, slots=True)
class TensorPart:
    """A tensor, or the rows [row_start, row_stop) of one (a panel), inside a segment or a record.

    `shape` is the whole tensor's; `offset` counts from the segment's (record's) start, a multiple of 64. As a
    matrix, a tensor has `shape[0]` rows and as many columns as its other dimensions have elements.
    """

    name: str
    format: WeightFormat
    shape: tuple[int, ...]
    row_start: int
    row_stop: int
    offset: int
    nbytes: int

    @property
    def rows(self) -> int:
        """Rows in this part."""
        return self.row_stop - self.row_start

    @property
    def cols(self) -> int:
        return math.prod(self.shape[1:])


@dataclass(frozen=True, slots=True)
class Segment:
    """The unit of reading and of residency: `nbytes` (a multiple of 4096) at `offset` of trunk.bin.

    `group` names the layer. `streamed` is false for embedding tables, whose rows are read on demand.
    """

    name: str
    group: str
    offset: int
    nbytes: int
    crc32: int
    streamed: bool
    parts: tuple[TensorPart, ...]


@dataclass(frozen=True, slots=True)
class Bank:
    """The routed experts of one layer: record e lies at e * record_bytes of `file`."""

    layer: int
    file: str
    num_experts: int
    record_bytes: int
    parts: tuple[TensorPart, ...]
    crc32: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AuxiliaryFile:
    """A file copied beside the weights: tokenizer, chat template, generation settings."""

    name: str
    nbytes: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything manifest.json says. `config` is the checkpoint's config.json, verbatim."""

    format_version: int
    family: str
    config: Mapping[str, Any]
    source: Mapping[str, Any]
    trunk_file: str
    segments: tuple[Segment, ...]
    banks: tuple[Bank, ...]
    files: tuple[AuxiliaryFile, ...]
    sharding: Sharding | None = None
    """Where the records of the banks lie, if not in the container itself."""
    errors: tuple[KindError, ...] = ()
    """What the conversion to other formats cost; empty if all weights are as they were."""

    def to_json(self) -> str:
        """The text of manifest.json: one key, segment, bank or file a line, the checksum last."""
        lines = ["{"]
        for key in ("format_version", "family", "config", "source", "trunk_file"):
            lines.append(f'"{key}": {json.dumps(getattr(self, key))},')
        for key in ("segments", "banks", "files", *(("errors",) if self.errors else ())):
            rows = ",\n".join(json.dumps(item, default=_plain) for item in getattr(self, key))
            lines.append(f'"{key}": [\n{rows}\n],' if rows else f'"{key}": [],')
        if self.sharding is not None:
            lines.append(f'"sharding": {json.dumps(self.sharding.to_dict())},')
        text = "\n".join(lines) + "\n"
        return text + CHECKSUM_LINE.format(zlib.crc32(text.encode()))


def _plain(item: object) -> object:
    """A part of the manifest as JSON has it: a format by its name, anything else by its fields."""
    if isinstance(item, WeightFormat):
        return item.name
    return {field.name: getattr(item, field.name) for field in fields(item)}  # type: ignore[arg-type]
