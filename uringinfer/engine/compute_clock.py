"""Clocks the kernels on a model's own weights: how many packed bytes a second one token multiplies.

The weights are multiplied one after the other, as in decoding, and there are more of them than a processor's
cache holds, where the model has that many. Attention and the rest of a layer are not counted, so a run is a
little slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from uringinfer.container.codebooks import read_codebooks
from uringinfer.container.container import Container
from uringinfer.container.manifest import Segment
from uringinfer.kernels import Floats, Kernels
from uringinfer.kernels.formats import Weight
from uringinfer.residency.order import tensors_in_order
from uringinfer.storage.arena import Arena
from uringinfer.storage.reader import Bytes

SAMPLE_BYTES = 256 << 20
"""Of the trunk, from its beginning: more than the caches of most processors."""


def clock_compute(
    container: Container,
    kernels: Kernels,
    seconds: float,
    *,
    sample_bytes: int = SAMPLE_BYTES,
    clock: Callable[[], float] = time.perf_counter,
) -> float | None:
    """Packed bytes per second of products with one token, over at least `seconds`; None without matrices.

    Raises OSError if the trunk cannot be read.
    """
    chosen = _choose(container.segments, sample_bytes)
    if not chosen:
        return None
    with Arena(sum(container.segments[number].nbytes for number in chosen)) as arena:
        products = _load(container, chosen, arena)
        nbytes = sum(weight.data.nbytes for weight, _ in products)
        _multiply(kernels, products)  # the first time also brings threads into being
        rounds = 0
        began = clock()
        while not rounds or clock() - began < seconds:
            _multiply(kernels, products)
            rounds += 1
        return rounds * nbytes / (clock() - began)


def _multiply(kernels: Kernels, products: Sequence[tuple[Weight, Floats]]) -> None:
    for weight, x in products:
        kernels.matmul(weight, x)


def _choose(segments: Sequence[Segment], most: int) -> list[int]:
    """Numbers of the first streamed segments with matrices: one, and then as many as `most` bytes allow."""
    chosen: list[int] = []
    for number, segment in enumerate(segments):
        if segment.streamed and any(_is_matrix(part.shape) for part in segment.parts):
            most -= segment.nbytes
            if chosen and most < 0:
                break
            chosen.append(number)
    return chosen


def _load(container: Container, chosen: Sequence[int], arena: Arena) -> list[tuple[Weight, Floats]]:
    """The matrices in the chosen segments, each with one token's input."""
    loaded: dict[int, Bytes] = {}
    with container.trunk_path.open("rb") as file:
        for number in chosen:
            segment = container.segments[number]
            loaded[number] = arena.carve(segment.nbytes, name=segment.name)
            file.seek(segment.offset)
            file.readinto(loaded[number].data)
    codebooks = read_codebooks(container.path, container.manifest)
    return [
        (piece.weight(loaded[piece.segment]), np.ones((1, piece.cols), np.float32))
        for tensor in tensors_in_order(container.segments, codebooks)
        for piece in tensor.pieces
        if piece.segment in loaded and _is_matrix(tensor.shape)
    ]


def _is_matrix(shape: Sequence[int]) -> bool:
    return len(shape) == 2
