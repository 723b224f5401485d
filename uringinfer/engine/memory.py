"""From a plan to memory: what the process holds already, and which region of the arena is whose."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from uringinfer.container.manifest import Segment
from uringinfer.kernels import Kernels
from uringinfer.kernels.formats import encode
from uringinfer.planning.memory import MemoryPlan
from uringinfer.residency.trunk import TrunkMemory
from uringinfer.storage.arena import Arena


def release_unused() -> None:
    """Gives memory that nobody uses back to the kernel, so that what is left is what is needed."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # the C library may be another one than glibc
    if trim is not None:
        trim(0)


def warm_up(kernels: Kernels) -> None:
    """Starts what kernels start at their first product: threads, and the buffers of libraries below."""
    size = 256
    weight = encode("bf16", np.zeros((size, size), np.float32))
    for tokens in (1, 4):
        kernels.matmul(weight, np.zeros((tokens, size), np.float32))


def peak_resident_bytes(proc: Path = Path("/proc")) -> int:
    """The most resident memory that this process ever had, in bytes (VmHWM); 0 where /proc does not say."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", (proc / "self/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def carve_trunk(arena: Arena, segments: Sequence[Segment], plan: MemoryPlan) -> TrunkMemory:
    """The regions of the trunk: pinned segments, slots, staging. `segments` are all of the container's."""
    streamed = [number for number, segment in enumerate(segments) if segment.streamed]
    pinned = [streamed[unit] for unit in plan.trunk.pinned]
    if plan.embedding_pinned:
        pinned += [number for number, segment in enumerate(segments) if not segment.streamed]
    return TrunkMemory(
        pinned={
            number: arena.carve(segments[number].nbytes, name=segments[number].name)
            for number in sorted(pinned)
        },
        slots=[arena.carve(plan.trunk.slot_bytes, name="ring slot") for _ in range(plan.trunk.ring_slots)],
        staging=arena.carve(plan.staging_bytes, name="staging of embedding rows"),
    )
