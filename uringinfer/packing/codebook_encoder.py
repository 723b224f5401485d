"""The encoder of the vector-quantised format: it learns a codebook from all matrices of one kind in a layer.

The codebook is fitted when it is first needed, to rows drawn with a seed that the kind's name and the
pack's seed give, in stretches evenly spread over the matrices. Which block is packed first, by which job, in
which run, does not show; an interrupted pack fits the same again.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels.codebooks import SAMPLE_VECTORS, fit_codebook, sample_vectors
from uringinfer.kernels.formats import WeightFormat
from uringinfer.kernels.numpy_search import DIMENSION
from uringinfer.kernels.weight_format import Floats
from uringinfer.packing.source import Bytes

STRETCHES = 32
"""Stretches of rows in a sample, if so many fill it. A source that gives only whole matrices is read as
often."""

Rows = Callable[[int, int, int], Floats]
"""(matrix, start, stop) -> rows [start, stop) of that matrix, as the source has them."""


class CodebookEncoder:
    """Encodes `count` matrices [rows, cols] of the kind `name` with one codebook, in a format with `bind`.

    `seed`, below 2^32, is the pack's; `self.seed` is what it and the name make: kinds draw differently.
    """

    def __init__(
        self, form: WeightFormat, name: str, rows_of: Rows, count: int, rows: int, cols: int, *, seed: int = 0
    ) -> None:
        self.form = form
        self.name = name
        self.seed = zlib.crc32(name.encode(), seed)
        self._rows_of = rows_of
        self._shape = (count, rows, cols)
        self._lock = threading.Lock()
        self._codebook: Floats | None = None

    def codebook(self) -> Floats:
        """The codebook, float32 [3, 256, 8], fitted at the first call. From any thread."""
        with self._lock:
            if self._codebook is None:
                self._codebook = fit_codebook(self._sample(), self.seed)
            return self._codebook

    def _sample(self) -> Floats:
        """Scaled vectors [n, 8] of rows from all over the matrices, all or about `SAMPLE_VECTORS`."""
        stretches = _stretches(*self._shape, np.random.default_rng(self.seed))
        return np.concatenate([sample_vectors(self._rows_of(*stretch)) for stretch in stretches])

    def encode(self, rows: Floats) -> Sequence[NDArray[np.generic]]:
        """See `Encoder.encode`."""
        return self.form.bound_to(self.codebook()).to_sections(rows)

    def decode(self, sections: Sequence[Bytes], rows: int, cols: int) -> Floats:
        """See `Encoder.decode`."""
        out = np.zeros((rows, cols), np.float32)
        self.form.bound_to(self.codebook()).decode_into(sections, cols, slice(0, rows), out)
        return out


def _stretches(count: int, rows: int, cols: int, rng: np.random.Generator) -> Iterator[tuple[int, int, int]]:
    """(matrix, start, stop) of a sample's rows: all there are, or one stretch from each of equal shares."""
    wanted, total = -(-SAMPLE_VECTORS * DIMENSION // cols), count * rows
    if total <= wanted:
        yield from ((matrix, 0, rows) for matrix in range(count))
        return
    shares = max(STRETCHES, -(-wanted // rows))
    length = -(-wanted // shares)
    for share in range(shares):
        matrix, row = divmod(int(rng.integers(share * total // shares, (share + 1) * total // shares)), rows)
        start = min(row, rows - length)
        yield matrix, start, start + length
