"""Tensors that are zero throughout: what a download leaves that allocated its file and fetched half of it.

Such a checkpoint is whole by its sizes, packs, and generates nonsense. So whatever a pack reads is looked at
in passing. A bias of zeros is common and means nothing; a matrix or a norm of zeros is told.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from uringinfer.packing.source import Bytes, SourceTensor, TensorSource

_GLANCE = 64
"""Bytes that say of nearly every piece at once that it is not zero."""

_SHOWN = 4


class WatchedSource:
    """A `source.TensorSource` that passes everything on to another and notices zeros."""

    def __init__(self, source: TensorSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._zero_bytes: dict[str, int] = {}
        self._other: set[str] = set()

    def zero_notes(self) -> list[str]:
        """The note that tensors are zero throughout, as far as they were read; none if there is none."""
        tensors = self._source.tensors
        names = sorted(
            name
            for name, nbytes in self._zero_bytes.items()
            if name not in self._other and nbytes >= tensors[name].nbytes and _matters(tensors[name])
        )
        if not names:
            return []
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        subject, verb = ("tensor", "is") if len(names) == 1 else ("tensors", "are")
        return [
            f"{subject} {', '.join(names[:_SHOWN])}{more} {verb} zero throughout: was the download complete?"
            " --check-source compares it with published digests"
        ]

    @property
    def path(self) -> Path:
        return self._source.path

    @property
    def config(self) -> Mapping[str, Any]:
        return self._source.config

    @property
    def tensors(self) -> Mapping[str, SourceTensor]:
        return self._source.tensors

    @property
    def identity(self) -> Mapping[str, Any]:
        return self._source.identity

    @property
    def notes(self) -> Sequence[str]:
        return [*self._source.notes, *self.zero_notes()]

    def state(self) -> str:
        return self._source.state()

    def auxiliary_files(self) -> Mapping[str, bytes]:
        return self._source.auxiliary_files()

    def read_rows(self, name: str, start: int, stop: int, out: Bytes) -> None:
        self._source.read_rows(name, start, stop, out)
        if name in self._other:
            return
        if out[:_GLANCE].any() or out.any():
            self._other.add(name)
        else:
            with self._lock:
                self._zero_bytes[name] = self._zero_bytes.get(name, 0) + out.size

    def close(self) -> None:
        self._source.close()


def _matters(tensor: SourceTensor) -> bool:
    return "bias" not in tensor.name and (len(tensor.shape) > 1 or "norm" in tensor.name)
