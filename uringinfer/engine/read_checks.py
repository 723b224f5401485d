"""The checks of what a loaded model reads, and the checksums of rows that they need."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from uringinfer.container.container import Container
from uringinfer.container.row_checksums import Checksums, read_row_checksums
from uringinfer.residency.checker import ReadChecker
from uringinfer.storage.reader import Reader


def open_checks(
    stack: ExitStack, reader: Reader, container: Container, wanted: bool
) -> tuple[ReadChecker | None, Mapping[int, Checksums]]:
    """A checker of what `reader` reads, closed with `stack`, and the checksums of the container's rows; none
    of both unless `wanted`. Raises IntegrityError if these checksums are damaged themselves."""
    if not wanted:
        return None, {}
    checker = ReadChecker(reader)
    stack.callback(checker.close)
    return checker, read_row_checksums(container.path, container.manifest)
