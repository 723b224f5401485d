"""How a reader is chosen. What one is, `contract` says; its names are to be had here as well."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from uringinfer.environment import native_enabled
from uringinfer.errors import EnvironmentError_
from uringinfer.storage import preadv, uring
from uringinfer.storage.arena import Arena
from uringinfer.storage.contract import (
    DEFAULT_QUEUE_DEPTH,
    DEFAULT_SPLIT_BYTES,
    Bytes,
    Priority,
    Reader,
    ReaderKind,
    ReaderStatistics,
    ReadRequest,
    Ticket,
)
from uringinfer.storage.denial import SWITCHED_OFF, Denial
from uringinfer.storage.direct import StorageFile

_LOG = logging.getLogger(__name__)

__all__ = [
    "DEFAULT_QUEUE_DEPTH",
    "DEFAULT_SPLIT_BYTES",
    "Bytes",
    "Priority",
    "ReadRequest",
    "Reader",
    "ReaderKind",
    "ReaderStatistics",
    "Ticket",
    "open_reader",
]


def open_reader(
    kind: ReaderKind = "auto",
    *,
    arena: Arena | None = None,
    queue_depth: int = DEFAULT_QUEUE_DEPTH,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    files: Sequence[StorageFile] = (),
) -> Reader:
    """Opens a reader that keeps `queue_depth` pieces of at most `split_bytes` bytes in flight.

    "auto" takes io_uring, or preadv on threads with the reason in `notes` where there is none; "uring" raises
    EnvironmentError_ there. `arena` and `files` are registered with the ring where that is allowed; reads
    into other memory and of other files work too. They must stay open until the reader is closed.
    """
    if kind == "preadv":
        return preadv.PreadvReader(queue_depth=queue_depth, split_bytes=split_bytes)
    ring = uring.open_ring(queue_depth) if native_enabled() else SWITCHED_OFF
    if isinstance(ring, Denial):
        _LOG.debug("io_uring refused: %s", ring.reason)
        if kind == "uring":
            raise EnvironmentError_(f"io_uring cannot be used: {ring.reason}", hint=ring.remedy)
        note = f"io_uring cannot be used: {ring.reason}; {queue_depth} threads read instead; {ring.remedy}"
        return preadv.PreadvReader(queue_depth=queue_depth, split_bytes=split_bytes, notes=[note])
    _LOG.debug("io_uring with %s, queue depth %d", ", ".join(ring.flags) or "no flags", queue_depth)
    return uring.UringReader(ring, arena=arena, queue_depth=queue_depth, split_bytes=split_bytes, files=files)
