"""Byte ranges of any alignment out of files that want aligned reads.

A direct read must start and end at the file's alignment; a tensor in a checkpoint does not. `read_range`
reads the aligned windows around a range into a buffer of its thread and copies what was asked for.
"""

from __future__ import annotations

import os
import threading

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import IntegrityError
from uringinfer.storage.arena import HUGE_PAGE, Arena
from uringinfer.storage.direct import StorageFile

Bytes = NDArray[np.uint8]

WINDOW_BYTES = 4 << 20
"""Large enough for a drive's full rate from a few threads, small enough to hold one in each."""

READ_BYTES = WINDOW_BYTES - (128 << 10)
"""What one window holds of any range, at alignments up to 64 KiB. A longer one costs another, small read."""

_local = threading.local()


def aligned_buffer(nbytes: int) -> Bytes:
    """uint8 [nbytes] of huge pages where the kernel gives them: a direct transfer to or from such memory has
    few parts, and reaches the drive's rate. Its address is a multiple of any file's alignment."""
    return Arena(nbytes).carve(nbytes, alignment=HUGE_PAGE)


def read_range(file: StorageFile, offset: int, out: Bytes) -> None:
    """Fills `out` with the bytes of `file` from `offset` on.

    Raises IntegrityError naming file, offset and cause if the file ends before or a read fails.
    """
    if not file.direct.is_direct:
        _read_fully(file, offset, out, len(out))
        return
    align = max(file.direct.offset_align, 512)
    window = _window()
    done = 0
    while done < len(out):
        skip = (offset + done) % align
        wanted = min(len(out) - done, WINDOW_BYTES - skip)
        nbytes = -(-(skip + wanted) // align) * align
        _read_fully(file, offset + done - skip, window[:nbytes], skip + wanted)
        out[done : done + wanted] = window[skip : skip + wanted]
        done += wanted


def _window() -> Bytes:
    """This thread's buffer of WINDOW_BYTES."""
    window: Bytes | None = getattr(_local, "window", None)
    if window is None:
        window = _local.window = aligned_buffer(WINDOW_BYTES)
    return window


def _read_fully(file: StorageFile, offset: int, out: Bytes, needed: int) -> None:
    """At least `needed` bytes into `out`; the rest of `out` may lie beyond the end of the file."""
    done = 0
    while done < needed:
        try:
            count = os.preadv(file.fd, [out[done:].data], offset + done)
        except OSError as error:
            raise IntegrityError(
                f"{file.path}: reading {len(out) - done} bytes at offset {offset + done} failed:"
                f" {os.strerror(error.errno or 0)}"
            ) from error
        if count == 0:
            raise IntegrityError(
                f"{file.path}: ends at {offset + done}, {needed - done} bytes before the end of the read",
                hint="the file became shorter since it was checked",
            )
        done += count
