"""The manifest of a container: what every byte in it means.

The manifest is hostile input. Loading bounds every number by the size of the file it points into, keeps every
path inside the directory, and takes no integer on trust (booleans are not integers); `fields` reads the JSON,
`geometry` checks the numbers against one another and against the files. Its last line carries the CRC32 of
every byte before it, so that damage to the manifest itself is found as well.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uringinfer.container import geometry
from uringinfer.container.fields import MAX_INTEGER, Fields, parse_object
from uringinfer.container.kind_errors import KindError, read_errors
from uringinfer.container.sharding import Sharding, check_drives, read_sharding
from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.storage.regular import read_regular

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
ALIGNMENT = geometry.BLOCK_ALIGN
"""Segments and records start at multiples of this and are padded to it."""
MAX_MANIFEST_BYTES = 256 << 20

_NEWER = "made by a newer uringinfer?"
_CHECKSUM_KEY = "manifest_crc32"
_CHECKSUM_LINE = '"' + _CHECKSUM_KEY + '": "{:08x}"\n}}\n'


@dataclass(frozen=True, slots=True)
class TensorPart:
    """A tensor, or the rows [row_start, row_stop) of one (a panel), inside a segment or a record.

    `shape` is the whole tensor's; `offset` counts from the segment's (record's) start, a multiple of 64. As a
    matrix, a tensor has `shape[0]` rows and as many columns as its other dimensions have elements.
    """

    name: str
    format: str
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
            rows = ",\n".join(json.dumps(asdict(item)) for item in getattr(self, key))
            lines.append(f'"{key}": [\n{rows}\n],' if rows else f'"{key}": [],')
        if self.sharding is not None:
            lines.append(f'"sharding": {json.dumps(self.sharding.to_dict())},')
        text = "\n".join(lines) + "\n"
        return text + _CHECKSUM_LINE.format(zlib.crc32(text.encode()))

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Reads the text of a manifest without looking at the files it points into.

        Raises IntegrityError if anything in it is not of the format, or if its checksum does not match.
        """
        fields = Fields(parse_object(data, MANIFEST_NAME), MANIFEST_NAME)
        version = fields.integer("format_version", 1, MAX_INTEGER)
        if version != FORMAT_VERSION:
            raise IntegrityError(
                f"{MANIFEST_NAME}: format version {version}, this program reads {FORMAT_VERSION}",
                hint="use a matching uringinfer, or pack the checkpoint again",
            )
        manifest = cls(
            format_version=version,
            family=fields.identifier("family"),
            config=fields.mapping("config"),
            source=fields.mapping("source"),
            trunk_file=fields.file_name("trunk_file"),
            segments=tuple(_segment(item, i) for i, item in enumerate(fields.items("segments"))),
            banks=tuple(_bank(item, i) for i, item in enumerate(fields.items("banks"))),
            files=tuple(_file(item, i) for i, item in enumerate(fields.items("files"))),
            sharding=_sharding(fields),
            errors=_errors(fields),
        )
        fields.identifier(_CHECKSUM_KEY)
        fields.close(hint=_NEWER)
        geometry.check_manifest(manifest)
        _check_own_checksum(data)
        return manifest

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """Reads and checks `directory`/manifest.json against the files beside it.

        Raises UsageError if there is no such directory, EnvironmentError_ if the system refuses to read it,
        IntegrityError naming the first thing that is wrong.
        """
        if not directory.is_dir():
            raise UsageError(
                f"{directory} is no directory", hint="name a container made by 'uringinfer pack'"
            )
        path = directory / MANIFEST_NAME
        try:
            nbytes = path.stat().st_size
            if nbytes > MAX_MANIFEST_BYTES:
                raise IntegrityError(f"{path}: {nbytes} bytes, more than any manifest ({MAX_MANIFEST_BYTES})")
            data = read_regular(path)
        except FileNotFoundError:
            raise IntegrityError(
                f"{directory} holds no {MANIFEST_NAME}: it is no container, or was not packed to its end",
                hint="run 'uringinfer pack' (again); it continues where it stopped",
            ) from None
        except OSError as error:
            raise EnvironmentError_(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
        try:
            manifest = cls.from_json(data)
        except IntegrityError as error:
            raise IntegrityError(f"{directory}: {error.message}", hint=error.hint) from None
        geometry.check_files(manifest, directory)
        check_drives(manifest)
        return manifest


def _sharding(fields: Fields) -> Sharding | None:
    if "sharding" not in fields:
        return None
    return read_sharding(fields.mapping("sharding"), f"{MANIFEST_NAME}: sharding")


def _errors(fields: Fields) -> tuple[KindError, ...]:
    return read_errors(fields.items("errors"), f"{MANIFEST_NAME}: errors") if "errors" in fields else ()


def _segment(value: object, index: int) -> Segment:
    fields = Fields(value, f"{MANIFEST_NAME}: segments[{index}]")
    segment = Segment(
        name=fields.identifier("name"),
        group=fields.identifier("group"),
        offset=fields.integer("offset", 0, MAX_INTEGER),
        nbytes=fields.integer("nbytes", 1, MAX_INTEGER),
        crc32=fields.integer("crc32", 0, 0xFFFFFFFF),
        streamed=fields.boolean("streamed"),
        parts=_parts(fields),
    )
    fields.close(hint=_NEWER)
    return segment


def _bank(value: object, index: int) -> Bank:
    fields = Fields(value, f"{MANIFEST_NAME}: banks[{index}]")
    num_experts = fields.integer("num_experts", 1, MAX_INTEGER)
    bank = Bank(
        layer=fields.integer("layer", 0, MAX_INTEGER),
        file=fields.file_name("file"),
        num_experts=num_experts,
        record_bytes=fields.integer("record_bytes", 1, MAX_INTEGER),
        parts=_parts(fields),
        crc32=fields.integers("crc32", num_experts, 0, 0xFFFFFFFF),
    )
    fields.close(hint=_NEWER)
    return bank


def _file(value: object, index: int) -> AuxiliaryFile:
    fields = Fields(value, f"{MANIFEST_NAME}: files[{index}]")
    file = AuxiliaryFile(
        name=fields.file_name("name"),
        nbytes=fields.integer("nbytes", 0, MAX_INTEGER),
        crc32=fields.integer("crc32", 0, 0xFFFFFFFF),
    )
    fields.close(hint=_NEWER)
    return file


def _parts(owner: Fields) -> tuple[TensorPart, ...]:
    return tuple(_part(item, f"{owner.where}: parts[{i}]") for i, item in enumerate(owner.items("parts")))


def _part(value: object, where: str) -> TensorPart:
    fields = Fields(value, where)
    part = TensorPart(
        name=fields.identifier("name"),
        format=fields.identifier("format"),
        shape=fields.shape("shape"),
        row_start=fields.integer("row_start", 0, MAX_INTEGER),
        row_stop=fields.integer("row_stop", 1, MAX_INTEGER),
        offset=fields.integer("offset", 0, MAX_INTEGER),
        nbytes=fields.integer("nbytes", 1, MAX_INTEGER),
    )
    fields.close(hint=_NEWER)
    return part


def _check_own_checksum(data: bytes) -> None:
    start = data.rfind(b'"' + _CHECKSUM_KEY.encode())
    actual = zlib.crc32(data[:start])
    if data[start:] != _CHECKSUM_LINE.format(actual).encode():
        raise IntegrityError(
            f"{MANIFEST_NAME}: checksum mismatch: its bytes give {actual:08x}",
            hint="it was damaged or edited; copy or pack the container again",
        )
