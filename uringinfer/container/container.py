"""A packed model on disk, opened: its manifest, checked, and where each thing lies.

Opening reads manifest.json and looks at the sizes of the files beside it; it reads no weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from uringinfer.container.identity import FileIdentity, check_unchanged, identities
from uringinfer.container.manifest import MANIFEST_NAME, Bank, Manifest, Segment, TensorPart
from uringinfer.container.manifest_reader import load_manifest
from uringinfer.container.row_checksums import ROW_CHECKSUMS_NAME
from uringinfer.errors import IntegrityError

_SAMPLE = 16
"""Bytes at either end of a tensor that its model is known by."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A part of a trunk tensor and the segment that holds it."""

    segment: Segment
    part: TensorPart

    @property
    def file_offset(self) -> int:
        """Where the part starts in the trunk file."""
        return self.segment.offset + self.part.offset


class Container:
    """An open container. Make one with `Container.open`; it holds no file open."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._files: dict[Path, FileIdentity] = {}
        self._placements: dict[str, list[Placement]] = {}
        for segment in manifest.segments:
            for part in segment.parts:
                self._placements.setdefault(part.name, []).append(Placement(segment, part))
        self._banks = {bank.layer: bank for bank in manifest.banks}

    @classmethod
    def open(cls, path: Path | str) -> Container:
        """Opens the directory `path`. Raises what `load_manifest` raises."""
        directory = Path(path)
        manifest_path = directory / MANIFEST_NAME
        before = FileIdentity.of(manifest_path) if manifest_path.is_file() else None
        container = cls(directory, load_manifest(directory))
        container._files = identities([manifest_path, *container._weight_paths()])
        if container._files[manifest_path] != before:
            raise IntegrityError(f"{directory} was replaced while it was opened", hint="open it again")
        return container

    def _weight_paths(self) -> Iterator[Path]:
        """Every file that loading reads."""
        if self.segments:
            yield self.trunk_path
        for bank in self.manifest.banks:
            yield from self.bank_paths(bank)
        for file in self.manifest.files:
            yield self.path / file.name

    def check_unchanged(self, descriptors: Mapping[Path, int]) -> None:
        """Raises IntegrityError naming a file that was replaced or written to since the container was opened;
        `descriptors` are those of files that are open for reading, by path."""
        check_unchanged(self._files, descriptors)

    @property
    def trunk_path(self) -> Path:
        return self.path / self.manifest.trunk_file

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every segment, in order of execution."""
        return self.manifest.segments

    @property
    def streamed_segments(self) -> tuple[Segment, ...]:
        """The segments that every pass needs, in order of execution: all but the embedding tables."""
        return tuple(segment for segment in self.manifest.segments if segment.streamed)

    @property
    def tensors(self) -> Mapping[str, list[Placement]]:
        """The trunk's tensors by name, in order of execution; the panels of one in order of rows."""
        return self._placements

    @property
    def banks(self) -> Mapping[int, Bank]:
        """The banks of routed experts by layer; empty for a dense model."""
        return self._banks

    def bank_paths(self, bank: Bank) -> tuple[Path, ...]:
        """The files that hold the bank's records: one, or one on each drive."""
        sharding = self.manifest.sharding
        if sharding is None:
            return (self.path / bank.file,)
        return tuple(Path(drive) / bank.file for drive in sharding.drives)

    def record_place(self, bank: Bank, expert: int) -> tuple[int, int]:
        """Where the record of `expert` lies: (number of the file in `bank_paths`, offset there)."""
        sharding = self.manifest.sharding
        drive, number = (0, expert) if sharding is None else sharding.place(expert)
        return drive, number * bank.record_bytes

    @property
    def streamed_bytes(self) -> int:
        """Bytes of the trunk that one pass needs, routed experts apart."""
        return sum(segment.nbytes for segment in self.streamed_segments)

    @property
    def table_bytes(self) -> int:
        """Bytes of the embedding tables, whose rows are read on demand."""
        return sum(segment.nbytes for segment in self.manifest.segments if not segment.streamed)

    @property
    def bank_bytes(self) -> int:
        """Bytes of all routed experts."""
        return sum(bank.num_experts * bank.record_bytes for bank in self.manifest.banks)

    @cached_property
    def identity(self) -> str:
        """16 hex digits of the model itself: its family, its tensors with their formats, the files beside
        them and a sample of the weights, however the trunk is cut into segments or sharded.

        Reads the first and the last bytes of every tensor of the trunk. Raises OSError if it cannot.
        """
        manifest = self.manifest
        digest = hashlib.sha256(json.dumps([manifest.family, manifest.config], sort_keys=True).encode())
        with self.trunk_path.open("rb") as file:
            for name in sorted(self._placements):
                first, last = self._placements[name][0], self._placements[name][-1]
                digest.update(json.dumps([name, first.part.format.name, first.part.shape]).encode())
                for start in (first.file_offset, last.file_offset + max(0, last.part.nbytes - _SAMPLE)):
                    file.seek(start)
                    digest.update(file.read(min(_SAMPLE, first.part.nbytes)))
        for bank in manifest.banks:
            parts = [(part.name, part.format.name, part.shape) for part in bank.parts]
            digest.update(json.dumps([bank.layer, bank.num_experts, parts]).encode())
            digest.update(repr(bank.crc32).encode())
        for auxiliary in manifest.files:
            if auxiliary.name == ROW_CHECKSUMS_NAME:
                continue  # of rows, by how the tables are cut
            digest.update(repr((auxiliary.name, auxiliary.crc32)).encode())
        return digest.hexdigest()[:16]

    @property
    def fingerprint(self) -> str:
        """16 hex digits that another model, or another packing of this one, does not have; sharding aside."""
        text = replace(self.manifest, sharding=None).to_json()
        return hashlib.sha256(text.encode()).hexdigest()[:16]
