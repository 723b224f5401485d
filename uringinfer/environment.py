"""The environment variables of this package, each read in one place, at the edge.

| variable | meaning |
|---|---|
| `URINGINFER_NATIVE` | `0`: use neither the io_uring module nor the native kernels, even if they are built |
"""

from __future__ import annotations

import os


def native_enabled() -> bool:
    """Whether compiled modules may be used; `URINGINFER_NATIVE=0` forbids them."""
    return os.environ.get("URINGINFER_NATIVE") != "0"
