"""How much memory a call takes at most beside what the process holds, as the kernel counts it."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

COUNTED_LATE = 2 << 20
"""The kernel counts resident pages in batches for each CPU, and the allocator keeps some."""
_RESET_PEAK = "5"


def peak_bytes(call: Callable[[], object]) -> int:
    """Runs `call`; the most resident memory meanwhile, less what there was before. Needs Linux 4.0."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    before = _status("VmRSS")
    call()
    return max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
