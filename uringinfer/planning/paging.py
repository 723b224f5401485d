"""What a run sees of the paging cliff: pages of its own that the kernel took away and it had to wait for.

Beyond what a machine holds, every pass faults its own weights, code or state back in, page by page, and a run
is slower by orders of magnitude without any read of its own being slow. Three counters show it: major faults
of this process, its memory in swap, and the time in which tasks stalled for memory (PSI).
"""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uringinfer.units import counted, format_size

NOTED_FAULTS = 64
"""Major faults of a phase: fewer are modules that were used for the first time."""
NOTED_SWAP = 1 << 20
NOTED_PRESSURE = 0.05
"""Share of a phase's time in which tasks stalled for memory."""
_PROC = Path("/proc")
_REMEDY = "lower --budget, or end what else takes memory"


@dataclass(frozen=True, slots=True)
class PagingCounters:
    """Counters at one moment. `stalled_seconds` is None where the kernel keeps no count (PSI is off)."""

    major_faults: int = 0
    swapped_bytes: int = 0
    stalled_seconds: float | None = None

    @classmethod
    def take(cls, proc: Path = _PROC) -> PagingCounters:
        """Those of this process now; stalls are the whole machine's."""
        swapped = re.search(r"^VmSwap:\s+(\d+) kB$", _text(proc / "self/status"), re.MULTILINE)
        stalled = re.search(r"^some .*\btotal=(\d+)$", _text(proc / "pressure/memory"), re.MULTILINE)
        return cls(
            resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
            int(swapped[1]) * 1024 if swapped else 0,
            int(stalled[1]) / 1e6 if stalled else None,
        )

    def since(self, before: PagingCounters) -> PagingCounters:
        """What happened between `before` and this moment; what is in swap is what is there now."""
        known = self.stalled_seconds is not None and before.stalled_seconds is not None
        return PagingCounters(
            self.major_faults - before.major_faults,
            self.swapped_bytes,
            (self.stalled_seconds or 0.0) - (before.stalled_seconds or 0.0) if known else None,
        )

    def notes(self, seconds: float) -> list[str]:
        """What a user should know of so many `seconds`, with the remedy; nothing if all was well."""
        found = []
        if self.major_faults >= NOTED_FAULTS:
            found.append(f"{counted(self.major_faults, 'page')} of its own had to be read back in")
        if self.swapped_bytes >= NOTED_SWAP:
            found.append(f"{format_size(self.swapped_bytes)} of it are in swap")
        if self.stalled_seconds is not None and self.stalled_seconds >= NOTED_PRESSURE * seconds > 0:
            found.append(f"tasks stalled for memory in {self.stalled_seconds / seconds:.0%} of the time")
        if not found:
            return []
        return [f"memory is short: meanwhile {', '.join(found)}; {_REMEDY}"]

    def to_json(self) -> dict[str, Any]:
        return {
            "major_faults": self.major_faults,
            "swapped_bytes": self.swapped_bytes,
            "stalled_seconds": self.stalled_seconds,
        }


def _text(path: Path) -> str:
    """The file's text; empty where the kernel has no such file, or no count in it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
