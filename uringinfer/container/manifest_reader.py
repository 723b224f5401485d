"""Reading manifest.json, which is hostile input.

Loading bounds every number by the size of the file it points into, keeps every path inside the directory, and
takes no integer on trust (booleans are not integers); `fields` reads the JSON, `geometry` checks the numbers
against one another and against the files.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from uringinfer.container import geometry
from uringinfer.container.drives import check_drives
from uringinfer.container.fields import MAX_INTEGER, Fields, parse_object
from uringinfer.container.kind_errors import KindError, read_errors
from uringinfer.container.manifest import (
    CHECKSUM_KEY,
    CHECKSUM_LINE,
    FORMAT_VERSION,
    MANIFEST_NAME,
    AuxiliaryFile,
    Bank,
    Manifest,
    Segment,
    TensorPart,
)
from uringinfer.container.sharding import Sharding, read_sharding
from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.kernels.formats import FORMATS
from uringinfer.storage.regular import read_regular

MAX_MANIFEST_BYTES = 256 << 20

_NEWER = "made by a newer uringinfer?"


def read_manifest(data: bytes) -> Manifest:
    """Reads the text of a manifest without looking at the files it points into.

    Raises IntegrityError if anything in it is not of the format, or if its checksum does not match.
    """
    fields = Fields(parse_object(data, MANIFEST_NAME), MANIFEST_NAME)
    version = fields.integer("format_version", 1, MAX_INTEGER)
    if version != FORMAT_VERSION:
        raise IntegrityError(
            f"{MANIFEST_NAME}: format version {version}, this program reads {FORMAT_VERSION}",
            hint="pack the checkpoint again, or use a matching uringinfer",
        )
    manifest = Manifest(
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
    fields.identifier(CHECKSUM_KEY)
    fields.close(hint=_NEWER)
    geometry.check_manifest(manifest)
    _check_own_checksum(data)
    return manifest


def load_manifest(directory: Path) -> Manifest:
    """Reads and checks `directory`/manifest.json against the files beside it.

    Raises UsageError if there is no such directory or it is a checkpoint, EnvironmentError_ if the system
    refuses to read it, IntegrityError naming the first thing that is wrong.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is no directory", hint="name a container made by 'uringinfer pack'")
    path = directory / MANIFEST_NAME
    try:
        nbytes = path.stat().st_size
        if nbytes > MAX_MANIFEST_BYTES:
            raise IntegrityError(f"{path}: {nbytes} bytes, more than any manifest ({MAX_MANIFEST_BYTES})")
        data = read_regular(path)
    except FileNotFoundError:
        if (directory / "config.json").is_file() and any(directory.glob("*.safetensors")):
            raise UsageError(
                f"{directory} is a checkpoint, not a container", hint="pack it first with 'uringinfer pack'"
            ) from None
        raise IntegrityError(
            f"{directory} holds no {MANIFEST_NAME}: it is no container, or was not packed to its end",
            hint="run 'uringinfer pack' (again); it continues where it stopped",
        ) from None
    except OSError as error:
        raise EnvironmentError_(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
    try:
        manifest = read_manifest(data)
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
    name, form = fields.identifier("name"), fields.identifier("format")
    if form not in FORMATS:
        raise IntegrityError(
            f"{where}: {name} has the unknown format '{form}'",
            hint="made by another version of uringinfer? Pack the model again",
        )
    part = TensorPart(
        name=name,
        format=FORMATS[form],
        shape=fields.shape("shape"),
        row_start=fields.integer("row_start", 0, MAX_INTEGER),
        row_stop=fields.integer("row_stop", 1, MAX_INTEGER),
        offset=fields.integer("offset", 0, MAX_INTEGER),
        nbytes=fields.integer("nbytes", 1, MAX_INTEGER),
    )
    fields.close(hint=_NEWER)
    return part


def _check_own_checksum(data: bytes) -> None:
    start = data.rfind(b'"' + CHECKSUM_KEY.encode())
    actual = zlib.crc32(data[:start])
    if data[start:] != CHECKSUM_LINE.format(actual).encode():
        raise IntegrityError(
            f"{MANIFEST_NAME}: checksum mismatch: its bytes give {actual:08x}",
            hint="it was damaged or edited; copy or pack the container again",
        )
