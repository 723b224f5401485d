"""A wait of the uring reader that Ctrl-C interrupts, anywhere."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from interruption import interrupted_when, main_is_in
from numpy.typing import NDArray
from scripted_ring import BLOCK, BUFFERED, FILE, Script, ScriptedRing, open_scripted

from uringinfer.errors import IntegrityError
from uringinfer.storage.denial import Denial
from uringinfer.storage.direct import StorageFile
from uringinfer.storage.reader import ReadRequest
from uringinfer.storage.uring import Ring, RingRead, UringReader, open_ring

Bytes = NDArray[np.uint8]


class Interruptions:
    """Raises KeyboardInterrupt at the `count`-th line that the storage code executes, once."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if "uringinfer/storage" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self

    def __enter__(self) -> Interruptions:
        sys.settrace(self)
        return self

    def __exit__(self, *details: object) -> None:
        sys.settrace(None)


def interrupted_waits(ring_script: Script, content: Bytes) -> Iterator[tuple[ScriptedRing, UringReader, Any]]:
    """A ring, a reader and a ticket whose wait was interrupted, at each line that it executes in turn."""
    for count in itertools.count(1):
        ring = ScriptedRing(content, ring_script)
        reader = open_scripted(ring, queue_depth=2)
        destination = np.zeros(5 * BLOCK, np.uint8)
        ticket = reader.submit([ReadRequest(FILE, 0, destination)])
        with Interruptions(count) as interruptions, contextlib.suppress(KeyboardInterrupt, IntegrityError):
            reader.wait(ticket)
        yield ring, reader, (ticket, destination)
        if interruptions.left > 0:
            return


def test_a_wait_interrupted_at_any_line_can_be_repeated(content: Bytes) -> None:
    runs = 0
    for ring, reader, (ticket, destination) in interrupted_waits(
        lambda read: min(read.nbytes, 3000), content
    ):
        reader.wait(ticket)
        assert np.array_equal(destination, content[: 5 * BLOCK])
        assert not ring.unmoved, "memory of a ticket that is done may still be written"
        reader.close()
        assert ring.in_flight == 0
        runs += 1
    assert runs > 200


def test_a_failing_wait_interrupted_at_any_line_fails_when_repeated(content: Bytes) -> None:
    def fail_late(read: RingRead) -> int:
        return -errno.EIO if read.offset == 2 * BLOCK else read.nbytes

    runs = 0
    for ring, reader, (ticket, _) in interrupted_waits(fail_late, content):
        with pytest.raises(IntegrityError, match="offset 8192"):
            reader.wait(ticket)
        assert not ring.unmoved, "memory of a ticket that is done may still be written"
        reader.close()
        runs += 1
    assert runs > 100


def test_ctrl_c_reaches_a_wait_for_a_drive_that_does_not_answer() -> None:
    ring = open_ring(1)
    if isinstance(ring, Denial):
        pytest.skip(f"no io_uring here: {ring.reason}")
    out, into = os.pipe()  # nobody writes to it
    destination = np.zeros(BLOCK, np.uint8)
    reader = open_scripted(ring, queue_depth=1)
    ticket = reader.submit([ReadRequest(StorageFile(Path("pipe"), out, BLOCK, BUFFERED), 0, destination)])
    with interrupted_when(lambda: main_is_in(Ring.reap)):
        reader.wait(ticket)
    os.write(into, b"x" * BLOCK)
    reader.wait(ticket)
    assert (destination == ord("x")).all()
    reader.close()
    os.close(into)
    os.close(out)
