"""Weight formats, each described once: its layout in bytes, its numpy encoder and decoder.

A packed matrix is one run of bytes. Formats with more than one section (codes, then scales) start every
section at a multiple of 64 bytes from the start of the run. Rows are stored one after another, row-major, as
[out, in].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix [rows, cols] in packed form.

    `data` is uint8 [nbytes], contiguous, usually a view into the arena: it must not outlive its slot.
    """

    format: str
    rows: int
    cols: int
    data: NDArray[np.uint8]
