"""What a probe's numbers depend on, besides the drive."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from uringinfer.planning.grants import room
from uringinfer.planning.machine import Machine
from uringinfer.probing.target import Target
from uringinfer.storage.arena import Arena
from uringinfer.storage.denial import Denial, registration_note
from uringinfer.storage.device import Device, find_device
from uringinfer.storage.direct import IN_MEMORY
from uringinfer.storage.filesystem import Alignment, data_bytes, direct_alignment, filesystem_name
from uringinfer.storage.uring import BUFFER_BYTES, Ring

_COPY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Conditions:
    """The header of a probe. Bytes, and bytes per second; None where the kernel does not say.

    `data_share` is the part of what is read that has blocks behind it. `cgroup_limits` are all above this
    process, by name. `memory_rate` is how fast one core
    copies memory. `ring_denial` says why there is no ring, `registration_note` why it takes no memory in
    advance.
    """

    path: str
    nbytes: int
    is_test_file: bool
    filesystem: str
    in_memory: bool
    data_share: float
    device: Device | None
    alignment: Alignment | None
    direct: bool
    direct_reason: str
    kernel: str
    ring_flags: tuple[str, ...]
    ring_denial: str | None
    registration_note: str | None
    arena_bytes: int
    huge_bytes: int
    memlock_soft: int | None
    memory_limit: int
    memory_limit_name: str
    cgroup_limits: tuple[tuple[str, int], ...]
    memory_rate: float

    @property
    def ceiling(self) -> tuple[str, float]:
        """What the drive cannot exceed, and by what: its bus if that is known, else memory."""
        if self.device is not None and self.device.bus is not None and self.device.ceiling is not None:
            return self.device.bus, self.device.ceiling
        return "copying memory", self.memory_rate

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find_conditions(target: Target, arena: Arena, ring: Ring | Denial) -> Conditions:
    """Looks at everything that the header shows; copies memory for a moment."""
    fd = target.file.fd
    machine = Machine.read()
    name = filesystem_name(fd)
    device = find_device(fd)
    # below the file's own page cache there may be that of a loop device's file
    stand_in = device.stand_in if device is not None else None
    return Conditions(
        path=str(target.file.path),
        nbytes=target.nbytes,
        is_test_file=target.is_test_file,
        filesystem=name,
        in_memory=name in IN_MEMORY,
        data_share=data_bytes(fd, target.nbytes) / target.nbytes,
        device=device,
        alignment=direct_alignment(fd),
        direct=target.file.direct.is_direct and stand_in is None,
        direct_reason=stand_in or target.file.direct.reason,
        kernel=os.uname().release,
        ring_flags=() if isinstance(ring, Denial) else tuple(ring.flags),
        ring_denial=f"{ring.reason}; {ring.remedy}" if isinstance(ring, Denial) else None,
        registration_note=None if isinstance(ring, Denial) else _registration_note(ring, arena),
        arena_bytes=arena.nbytes,
        huge_bytes=arena.huge_bytes(),
        memlock_soft=machine.memlock_soft,
        memory_limit=machine.usable_bytes,
        memory_limit_name=machine.bounded_by,
        cgroup_limits=tuple((bound.name, bound.limit) for bound in machine.cgroup_bounds),
        memory_rate=_memory_rate(max(1, min(_COPY_BYTES, room(machine) // 2))),
    )


def _registration_note(ring: Ring, arena: Arena) -> str | None:
    result = ring.register_buffers(arena.address, arena.nbytes, BUFFER_BYTES)
    limits = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return registration_note(-result, arena.nbytes, limits) if result < 0 else None


def _memory_rate(copied: int) -> float:
    source = np.ones(copied, np.uint8)
    target = np.empty_like(source)
    best = float("inf")
    for _ in range(4):  # the first also fetches the target's pages
        began = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - began)
    return copied / best
