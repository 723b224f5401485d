"""The manifest of a container: what every byte in it means.

The manifest is hostile input. Loading bounds every number by the size of the file it points into, keeps every
path inside the directory, and takes no integer on trust (booleans are not integers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORMAT_VERSION = 1
ALIGNMENT = 4096
"""Segments and records start at multiples of this and are padded to it."""


@dataclass(frozen=True, slots=True)
class TensorPart:
    """A tensor, or the rows [row_start, row_stop) of one (a panel), inside a segment or a record.

    `shape` is the whole tensor's; `offset` counts from the segment's (record's) start, a multiple of 64.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    row_start: int
    row_stop: int
    offset: int
    nbytes: int


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
