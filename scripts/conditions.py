"""What a measurement ran on, in the words that every section of docs/benchmarks.md has."""

from __future__ import annotations

import os
import platform


def machine_conditions() -> str:
    """Processors, kernel, and what else the machine is doing."""
    return (
        f"{os.cpu_count()} processors ({platform.machine()}), Linux {platform.release()}, load average"
        f" {os.getloadavg()[0]:.1f}"
    )
