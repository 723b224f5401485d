"""Gaps between the regions of an arena that must not be touched, where an address sanitizer watches.

Kernels get addresses into one large mapping, where a read beside a slot finds the next slot: no fault, and
another answer on another day. Built and run with a sanitizer (`scripts/test.sh --asan`), such a read is an
error with the line that made it. Elsewhere there are no gaps.
"""

from __future__ import annotations

import ctypes

_poison = getattr(ctypes.CDLL(None), "__asan_poison_memory_region", None)

REDZONE_BYTES = 4096 if _poison is not None else 0
"""Behind each region."""
SPARE_BYTES = 4096 * REDZONE_BYTES
"""What an arena has more for the gaps."""


def poison(address: int, nbytes: int) -> None:
    """From now on an access to these bytes by sanitized code is an error."""
    if _poison is not None:
        _poison(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))
