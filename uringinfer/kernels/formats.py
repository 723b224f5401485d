"""Weight formats, each described once: its layout in bytes, its numpy encoder and decoder.

A packed matrix is one run of bytes. Formats with more than one section (codes, then scales) start every
section at a multiple of 64 bytes from the start of the run. Rows are stored one after another, row-major, as
[out, in]. This file is the index; the formats themselves are in `*_formats.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import UsageError
from uringinfer.kernels.affine_formats import AFFINE
from uringinfer.kernels.block_formats import FP8, FP8_SMALL, MXFP4
from uringinfer.kernels.codebooks import fit_codebook, sample_vectors
from uringinfer.kernels.float_formats import BF16, F16, F32
from uringinfer.kernels.ggml_formats import GGML
from uringinfer.kernels.group_formats import Q4, Q4_G32, Q8, Q8_G32
from uringinfer.kernels.scaled_formats import SCALED
from uringinfer.kernels.vq_formats import VQ3
from uringinfer.kernels.weight_format import Floats, WeightFormat

__all__ = [
    "ENCODED",
    "FORMATS",
    "Weight",
    "WeightFormat",
    "decode",
    "decode_rows",
    "encode",
    "weight_format",
]

_ALL = (BF16, F16, F32, FP8, *FP8_SMALL, Q8, Q8_G32, MXFP4, Q4, Q4_G32, VQ3, *GGML, *AFFINE, *SCALED)
FORMATS: dict[str, WeightFormat] = {entry.name: entry for entry in _ALL}
"""Every format by its name in the manifest."""
ENCODED = tuple(entry.name for entry in _ALL if entry.encode_sections is not None)
"""The names of those that matrices can be packed in, which the command line takes; the others come out of
files as they are."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix [rows, cols] in packed form.

    `data` is uint8 [nbytes], contiguous, usually a view into the arena: it must not outlive its slot.
    """

    format: WeightFormat
    rows: int
    cols: int
    data: NDArray[np.uint8]

    def sections(self) -> list[NDArray[np.uint8]]:
        """The sections of its bytes, as views."""
        return self.format.split(self.data, self.rows, self.cols)


def weight_format(name: str) -> WeightFormat:
    """The format called `name`. Raises UsageError, naming those that exist, if there is none."""
    try:
        return FORMATS[name]
    except KeyError:
        known = ", ".join(FORMATS)
        raise UsageError(f"'{name}' is no weight format", hint=f"choose one of {known}") from None


def encode(name: str, matrix: Floats, codebook: Floats | None = None) -> Weight:
    """Packs float32 [rows, cols] in the format `name`; without a `codebook`, one is fitted to the matrix
    where the format needs it."""
    rows, cols = matrix.shape
    form = weight_format(name)
    if form.bind is not None:
        form = form.bind(fit_codebook(sample_vectors(matrix)) if codebook is None else codebook)
    return Weight(form, rows, cols, form.encode(matrix))


def decode(weight: Weight) -> Floats:
    """The whole matrix as float32 [rows, cols]."""
    return weight.format.decode(weight.data, weight.rows, weight.cols)


def decode_rows(weight: Weight, ids: NDArray[np.int64]) -> Floats:
    """Rows `ids` [T] as float32 [T, cols]: an embedding lookup. Raises IndexError if there is no such row."""
    out = np.zeros((len(ids), weight.cols), np.float32)
    weight.format.decode_into(weight.sections(), weight.cols, ids, out)
    return out
