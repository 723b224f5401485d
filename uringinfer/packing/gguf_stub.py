"""A GGUF file that was cut down to its header, because its weights are in a container by now.

Behind the header stand a mark and what the file was before, so that whoever opens it knows, and an
interrupted pack recognises its source.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from uringinfer.errors import EnvironmentError_

_MARK = b"\n# weights packed by uringinfer, space given back: "
MARK_BYTES = 200
"""More than a mark and what follows it take."""


@dataclass(frozen=True, slots=True)
class Before:
    """Size and time of the file as it was."""

    nbytes: int
    mtime_ns: int


def read_mark(data: bytes) -> Before | None:
    """What the bytes behind a header say; None if the file was not cut down."""
    if not data.startswith(_MARK):
        return None
    try:
        return Before(**json.loads(data[len(_MARK) :].partition(b"\n")[0]))
    except (ValueError, TypeError):
        return None


def cut_down(path: Path, header_bytes: int) -> tuple[Before, int]:
    """Cuts the file at `path` down to its header and a mark; what it was, and the bytes given back.

    The mark is on the drive before anything is cut: a file without it is whole. Raises EnvironmentError_
    naming a file that cannot be written.
    """
    try:
        with path.open("r+b") as file:
            status = os.fstat(file.fileno())
            before = Before(status.st_size, status.st_mtime_ns)
            mark = _MARK + json.dumps(asdict(before)).encode() + b"\n"
            file.seek(header_bytes)
            file.write(mark)
            file.flush()
            os.fsync(file.fileno())
            file.truncate(header_bytes + len(mark))
            os.fsync(file.fileno())
            return before, status.st_size - header_bytes - len(mark)
    except OSError as error:
        raise EnvironmentError_(f"cannot cut down {path}: {os.strerror(error.errno or 0)}") from error
