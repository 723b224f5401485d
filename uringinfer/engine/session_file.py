"""A conversation on disk: the tokens it was fed, the state that the model keeps of them, the sampler's place.

Layout, little-endian: "uringses", version u32, header bytes u32, the header as JSON; then the arrays, each
from the next multiple of 64 on, zeros between; last the CRC32 of everything before it, u32. The header names
the model by its identity: a state means nothing to another one, or to the same one in other formats.
Only what the positions fed fill is kept, so a session can go on in a longer or shorter context.

A file is written beside its place and renamed into it, so that there is a whole one or none. It is hostile
input when it is read. It holds the conversation in clear text: it is readable by its owner alone.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uringinfer.container.checksum import crc32
from uringinfer.container.fields import MAX_INTEGER, Fields, parse_object
from uringinfer.errors import EnvironmentError_, IntegrityError, UsageError
from uringinfer.storage.regular import open_regular, replacing

MAGIC = b"uringses"
VERSION = 2
ALIGNMENT = 64
SESSION_SUFFIX = ".uringses"
"""Of the names of sessions that are swapped out."""
_PREFIX = struct.Struct("<8sII")
_CRC = struct.Struct("<I")
_MAX_HEADER = 1 << 26
_COPY_BYTES = 1 << 22

Bytes = NDArray[np.uint8]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """What a session file says of itself.

    `ids` are the tokens of the conversation in order: `length` of them were fed, those behind were chosen and
    not fed yet. `seed` and `draws` are the sampler's, None if nothing was sampled. `messages` are what a
    conversation consists of, None where tokens alone were fed; `tools` and `variables` are what its chat
    format was told besides.
    """

    model: str
    family: str
    ids: tuple[int, ...]
    length: int
    seed: int | None = None
    draws: int | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    tools: tuple[Mapping[str, Any], ...] | None = None
    variables: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "family": self.family,
            "ids": list(self.ids),
            "length": self.length,
            "seed": None if self.seed is None else str(self.seed),
            "draws": self.draws,
            "messages": None if self.messages is None else [dict(message) for message in self.messages],
            "tools": None if self.tools is None else [dict(tool) for tool in self.tools],
            "variables": None if self.variables is None else dict(self.variables),
        }


def write_session(path: Path, header: SessionHeader, arrays: Arrays) -> None:
    """Writes `path`, or what a link there leads to, in one step; an older file is replaced.

    Raises EnvironmentError_ if it cannot be written; then the older file is as it was.
    """
    try:
        with replacing(path, 0o600) as file:
            _write(file, header, arrays)
    except OSError as error:
        raise EnvironmentError_(
            f"cannot write the session {path}: {os.strerror(error.errno or 0)}", hint="choose another file"
        ) from error


def read_header(path: Path) -> SessionHeader:
    """What the session in `path` is of. Checks the header alone.

    Raises UsageError if there is no such file, IntegrityError if it is no session of this version.
    """
    with _open(path) as file:
        return _read_header(file, path)[0]


def read_session(path: Path, header: SessionHeader, arrays: Arrays) -> None:
    """Fills `arrays` with those of the session in `path`, whose header has been read.

    Raises IntegrityError if they are not exactly the arrays in the file, by name, dtype and shape, or if the
    file is damaged; the arrays' contents mean nothing then.
    """
    with _open(path) as file:
        found, described, checksum = _read_header(file, path)
        expected = _describe(arrays)
        if found != header or described != expected:
            missed = next((b for a, b in zip(described, expected, strict=False) if a != b), None)
            raise IntegrityError(
                f"{path} does not hold the arrays of this model"
                + (f": {missed['name']} is not {missed['dtype']} {missed['shape']}" if missed else ""),
                hint="it was saved by another version; begin the conversation anew",
            )
        for array in arrays.values():
            checksum = crc32(_take(file, -file.tell() % ALIGNMENT, path), checksum)
            for piece in _pieces(array):
                if file.readinto(piece.data) != piece.size:
                    raise _short(path)
                checksum = crc32(piece, checksum)
        if _CRC.unpack(_take(file, _CRC.size, path))[0] != checksum:
            raise IntegrityError(f"{path}: checksum mismatch", hint="the file is damaged; begin anew")
        if file.read(1):
            raise IntegrityError(f"{path}: bytes behind its end", hint="the file is damaged; begin anew")


def _write(file: BufferedWriter, header: SessionHeader, arrays: Arrays) -> None:
    text = json.dumps(header.to_json() | {"arrays": _describe(arrays)}, separators=(",", ":")).encode()
    if len(text) > _MAX_HEADER:
        raise UsageError(f"a session of {len(header.ids)} tokens is too long to be saved")
    head = _PREFIX.pack(MAGIC, VERSION, len(text)) + text
    file.write(head)
    checksum = crc32(head)
    for array in arrays.values():
        padding = bytes(-file.tell() % ALIGNMENT)
        file.write(padding)
        checksum = crc32(padding, checksum)
        for piece in _pieces(array):
            file.write(piece.data)
            checksum = crc32(piece, checksum)
    file.write(_CRC.pack(checksum))


def _read_header(file: BufferedReader, path: Path) -> tuple[SessionHeader, list[dict[str, Any]], int]:
    """(header, descriptions of the arrays, checksum of what was read)."""
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
        raise IntegrityError(f"{path} is no saved session", hint="give a file that --save-session wrote")
    _, version, nbytes = _PREFIX.unpack(prefix)
    if version != VERSION:
        raise IntegrityError(
            f"{path} is a session of version {version}, this program reads {VERSION}",
            hint="begin the conversation anew",
        )
    if nbytes > min(_MAX_HEADER, path.stat().st_size):
        raise _short(path)
    text = _take(file, nbytes, path)
    fields = Fields(parse_object(text, str(path)), str(path))
    ids = fields.items("ids")
    seed = fields.optional_text("seed")
    if seed is not None and not (seed.isascii() and seed.isdecimal() and len(seed) < 400):
        fields.fail("seed", "is not a number")
    header = SessionHeader(
        model=fields.identifier("model"),
        family=fields.identifier("family"),
        ids=Fields({"ids": ids}, str(path)).integers("ids", len(ids), 0, MAX_INTEGER),
        length=fields.integer("length", 0, len(ids)),
        seed=None if seed is None else int(seed),
        draws=fields.optional_integer("draws", 0, MAX_INTEGER),
        messages=_messages(fields),
        tools=_objects(fields, "tools"),
        variables=fields.optional_mapping("variables"),
    )
    described = fields.items("arrays")
    fields.close(hint="the file is damaged; begin anew")
    return header, described, crc32(prefix + text)


def _messages(fields: Fields) -> tuple[Mapping[str, Any], ...] | None:
    messages = _objects(fields, "messages")
    if not all(isinstance(message.get("role"), str) for message in messages or ()):
        fields.fail("messages", "holds something that is no message")
    return messages


def _objects(fields: Fields, key: str) -> tuple[Mapping[str, Any], ...] | None:
    items = fields.optional_items(key)
    if items is not None and not all(isinstance(item, dict) for item in items):
        fields.fail(key, "holds something that is no object")
    return None if items is None else tuple(items)


def _describe(arrays: Arrays) -> list[dict[str, Any]]:
    return [
        {"name": name, "dtype": array.dtype.str, "shape": list(array.shape)} for name, array in arrays.items()
    ]


def _pieces(array: NDArray[Any]) -> Iterator[Bytes]:
    """Views of `array` as bytes, contiguous each, which in turn are its bytes in C order."""
    if array.size == 0:
        return
    if not array.flags.c_contiguous:
        for part in array:
            yield from _pieces(part)
        return
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, _COPY_BYTES):
        yield flat[start : start + _COPY_BYTES]


def _open(path: Path) -> BufferedReader:
    try:
        return open_regular(path)
    except OSError as error:
        raise UsageError(f"cannot read the session {path}: {os.strerror(error.errno or 0)}") from None


def _take(file: BufferedReader, nbytes: int, path: Path) -> bytes:
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise _short(path)
    return data


def _short(path: Path) -> IntegrityError:
    return IntegrityError(f"{path} is shorter than it says", hint="the file is damaged; begin anew")
