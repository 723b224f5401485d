"""A Hugging Face checkpoint directory: config.json, one or many safetensors shards, tokenizer files.

Opening reads headers alone, and checks the whole checkpoint before anybody writes: every shard that the index
names is there and complete, and holds exactly the tensors that the index says.
"""

from __future__ import annotations

import gc
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uringinfer.container.fields import Fields, parse_object
from uringinfer.container.manifest import MANIFEST_NAME
from uringinfer.errors import EnvironmentError_, IntegrityError, UnsupportedModelError, UsageError
from uringinfer.packing.downloads import HEAD_BYTES, foreign_content, missing_reason
from uringinfer.packing.safetensors_header import ShardHeader, ShardTensor, read_header
from uringinfer.packing.source import Bytes, SourceTensor
from uringinfer.packing.windows import read_range
from uringinfer.storage.direct import StorageFile, open_file
from uringinfer.storage.regular import open_regular
from uringinfer.units import format_size

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

AUXILIARY_NAMES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tiktoken.model",
    "chat_template.jinja",
    "chat_template.json",
)
"""Files that a container keeps so that it needs nothing else."""

_MOST_BYTES = {"config.json": 16 << 20, "generation_config.json": 16 << 20}
_MOST_OF_OTHERS = 512 << 20
"""Small files are read whole; no published one comes near this."""

_SHOWN_FAULTS = 5


class CheckpointSource:
    """A checkpoint directory as a `source.TensorSource`. Make one with `CheckpointSource.open`."""

    def __init__(self, path: Path, config: Mapping[str, Any], shards: list[ShardHeader]) -> None:
        self.path = path
        self.config = config
        self.notes: list[str] = []
        self._shards = shards
        self._places: dict[str, tuple[ShardHeader, ShardTensor]] = {
            name: (shard, entry) for shard in shards for name, entry in shard.tensors.items()
        }
        self.tensors: dict[str, SourceTensor] = {
            name: entry.tensor for name, (_, entry) in self._places.items()
        }
        self.identity: dict[str, Any] = {
            "kind": "safetensors",
            "name": Path(os.path.realpath(path)).name,
            "files": {shard.path.name: shard.nbytes for shard in shards},
            "headers_crc32": zlib.crc32(b"".join(shard.crc32.to_bytes(4, "little") for shard in shards)),
        }
        self._files: dict[Path, StorageFile] = {}

    @classmethod
    def open(cls, path: Path) -> CheckpointSource:
        """Opens and checks the directory `path`.

        Raises UsageError if it is no directory or a container, UnsupportedModelError if it holds weights of
        another kind, IntegrityError naming what is missing, short, or contradicts the index.
        """
        if not path.is_dir():
            raise UsageError(f"{path} is no directory", hint="name a checkpoint directory or a GGUF file")
        config = parse_object(_read(path / "config.json"), str(path / "config.json"))
        with _collector_paused():
            index = _read_index(path)
            stale = None if index is None else _stale_index(path, index)
            index = None if stale else index
            shards = _read_headers(path, _shard_names(path, index))
            if index is not None:
                _check_index(path / INDEX_NAME, index, shards)
            source = cls(path, config, shards)
            source.notes += [stale] if stale else []
        source._files = {shard.path: open_file(shard.path) for shard in shards}
        return source

    def state(self) -> str:
        """See `TensorSource.state`: size, time and inode of every file that packing reads."""
        paths = [*(shard.path for shard in self._shards), *self._auxiliary_paths()]
        stats = ((path.name, path.stat()) for path in paths)
        return repr([(name, s.st_size, s.st_mtime_ns, s.st_ino) for name, s in stats])

    def auxiliary_files(self) -> Mapping[str, bytes]:
        """See `TensorSource.auxiliary_files`. Raises IntegrityError naming a file that is damaged."""
        files = {path: _read(path) for path in self._auxiliary_paths()}
        for path, data in files.items():
            if path.suffix == ".json":
                _check_json(path, data)
        return {path.name: data for path, data in files.items()}

    def _auxiliary_paths(self) -> list[Path]:
        """A link that leads nowhere is among them: it says that the file belongs there."""
        return [self.path / name for name in AUXILIARY_NAMES if os.path.lexists(self.path / name)]

    def read_rows(self, name: str, start: int, stop: int, out: Bytes) -> None:
        shard, entry = self._places[name]
        read_range(self._files[shard.path], entry.offset + start * entry.tensor.row_bytes, out)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Half a million small objects come to live here, none in a cycle: the collector would walk them again
    and again, for half of the time that an index takes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            nbytes, most = os.fstat(file.fileno()).st_size, _MOST_BYTES.get(path.name, _MOST_OF_OTHERS)
            if nbytes > most:
                raise IntegrityError(
                    f"{path}: {format_size(nbytes)}, more than any {path.name} ({format_size(most)})",
                    hint="it is another file, or damaged: download it again",
                )
            data = file.read()
    except FileNotFoundError:
        reason = missing_reason(path.parent, path.name)
        raise IntegrityError(
            f"{path} is missing" + (f": {reason}" if reason else ""),
            hint="download the checkpoint's small files too",
        ) from None
    except OSError as error:
        raise EnvironmentError_(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
    if (foreign := foreign_content(path, data[:HEAD_BYTES])) is not None:
        raise foreign
    return data


def _check_json(path: Path, data: bytes) -> None:
    """Raises IntegrityError unless `data` is a JSON object.

    Unlike `parse_object` it lets duplicate keys pass: published vocabularies are copied as they are.
    """
    try:
        is_object = isinstance(json.loads(data), dict)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path}: not valid JSON: {error}", hint="download it again") from None
    if not is_object:
        raise IntegrityError(f"{path}: holds no JSON object", hint="download it again")


def _read_index(path: Path) -> dict[str, str] | None:
    """Tensor name -> shard name, or None if the checkpoint has no index."""
    if not (path / INDEX_NAME).exists():
        return None
    where = str(path / INDEX_NAME)
    document = parse_object(_read(path / INDEX_NAME), where)
    entries = Fields(document, where).mapping("weight_map")
    # The few distinct names are checked once each; what is no text cannot be one of them.
    texts = {value: value for value in entries.values() if type(value) is str}
    shards = Fields(texts, f"{where}: weight_map")
    known = {name: shards.file_name(name) for name in texts}
    fields = Fields(entries, f"{where}: weight_map")
    return {
        name: known[value] if type(value) is str else fields.file_name(name)
        for name, value in entries.items()
    }


def _stale_index(path: Path, index: Mapping[str, str]) -> str | None:
    """The note that the index is of no use, if it speaks of shards that are not there and the whole model
    lies beside it in one file, as after a conversion or a merge; None if it is of use."""
    names = set(index.values())
    missing = [name for name in names if not (path / name).is_file()]
    if not missing or SINGLE_NAME in names or not (path / SINGLE_NAME).is_file():
        return None
    return (
        f"{INDEX_NAME} names {len(missing)} files that are not there ({_shorten(sorted(missing))});"
        f" the model is taken from {SINGLE_NAME}, which is whole"
    )


def _shard_names(path: Path, index: Mapping[str, str] | None) -> list[str]:
    """The shards to read, in order of name. Raises IntegrityError naming those that are missing."""
    found = {file.name for file in path.glob("*.safetensors")}
    if index is not None:
        names = sorted(set(index.values()))
        missing = [name for name in names if name not in found or not (path / name).exists()]
        if missing:
            reason = missing_reason(path, missing[0])
            raise IntegrityError(
                f"{path}: {len(missing)} of {len(names)} shards named by {INDEX_NAME} missing:"
                f" {_shorten(missing)}" + (f"; {reason}" if reason else ""),
                hint="download them (hf download continues where it stopped)",
            )
        return names
    if SINGLE_NAME in found or len(found) == 1:
        return [SINGLE_NAME] if SINGLE_NAME in found else list(found)
    if found:
        raise IntegrityError(
            f"{path}: {len(found)} safetensors shards, but no {INDEX_NAME} that says they are all",
            hint="download the index",
        )
    if (path / MANIFEST_NAME).is_file():
        raise UsageError(f"{path}: is a container already", hint="use it as it is, or name the checkpoint")
    if any(path.glob("*.bin")) or any(path.glob("*.pt")):
        raise UnsupportedModelError(
            f"{path}: holds pickled weights, no safetensors",
            hint="convert the checkpoint to safetensors first",
        )
    raise IntegrityError(f"{path}: holds no safetensors file", hint="name a complete checkpoint directory")


def _read_headers(path: Path, names: Iterable[str]) -> list[ShardHeader]:
    """The header of every shard. Raises one IntegrityError that names every faulty shard."""
    shards, faults = [], []
    for name in names:
        try:
            shards.append(read_header(path / name))
        except IntegrityError as error:
            faults.append(error)
        except OSError as error:
            raise EnvironmentError_(f"cannot read {path / name}: {os.strerror(error.errno or 0)}") from error
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise IntegrityError(
            f"{len(faults)} shards are damaged: {_shorten([fault.message for fault in faults])}",
            hint=faults[0].hint,
        )
    return shards


def _check_index(path: Path, index: Mapping[str, str], shards: list[ShardHeader]) -> None:
    """Index and shards name the same tensors in the same places."""
    places = {shard.path.name: shard.tensors for shard in shards}
    absent = [f"{name!a} in {shard}" for name, shard in index.items() if name not in places[shard]]
    if absent:
        raise IntegrityError(f"{path}: names tensors that their shards do not hold: {_shorten(absent)}")
    unnamed = [
        f"{name!a} in {shard}"
        for shard, tensors in places.items()
        for name in tensors
        if index.get(name) != shard
    ]
    if unnamed:
        raise IntegrityError(f"{path}: does not name tensors that shards hold: {_shorten(unnamed)}")


def _shorten(names: list[str]) -> str:
    more = len(names) - _SHOWN_FAULTS
    return ", ".join(names[:_SHOWN_FAULTS]) + (f" and {more} more" if more > 0 else "")
