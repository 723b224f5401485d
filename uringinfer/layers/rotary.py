"""Rotary position embedding: the angles and their scalings. The rotation itself is `kernels.rotary`.

Frequencies are computed in float64 and rounded to float32; an angle is the float32 product of position and
frequency, as in the implementations that models are trained with. Sources: RoFormer (arXiv 2104.09864),
position interpolation (arXiv 2306.15595), YaRN (arXiv 2309.00071), Llama 3.1's reference code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uringinfer.layers.weights import Floats

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """Angles for one kind of head. Compared by identity: layers that share one share its tables.

    `frequencies` float32 [R/2], radians per position; `scale` multiplies cosine and sine; `interleaved` pairs
    channels (2i, 2i + 1) instead of (i, i + R/2).
    """

    frequencies: Floats
    scale: float = 1.0
    interleaved: bool = False

    def table_bytes(self, count: int) -> int:
        """Upper bound of what the tables of `count` tokens, of any number of spans, allocate: float64 angles,
        and copies of the tables of each span, included."""
        return count * len(self.frequencies) * (2 * 4 + 3 * 8)

    def tables(self, start: int, count: int) -> tuple[Floats, Floats]:
        """Cosine and sine for positions start .. start + count - 1 -> two float32 [count, R/2]."""
        positions = np.arange(start, start + count, dtype=np.float32)
        angles = (positions[:, None] * self.frequencies).astype(np.float64)
        cos = (np.cos(angles) * self.scale).astype(np.float32)
        sin = (np.sin(angles) * self.scale).astype(np.float32)
        return cos, sin


def default_frequencies(theta: float, dim: int) -> Doubles:
    """theta^(-2i/dim) for i < ceil(dim/2), float64."""
    return np.asarray(theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim), np.float64)


def llama3_frequencies(
    frequencies: Doubles, *, factor: float, low_freq_factor: float, high_freq_factor: float, original: int
) -> Doubles:
    """Long wavelengths divided by `factor`, short ones kept, those between blended smoothly.

    `original` is the context length of pretraining."""
    wavelengths = 2 * math.pi / frequencies
    blend = (original / wavelengths - low_freq_factor) / (high_freq_factor - low_freq_factor)
    blend = np.clip(blend, 0.0, 1.0)
    return (1.0 - blend) * frequencies / factor + blend * frequencies


def yarn_frequencies(
    frequencies: Doubles,
    *,
    theta: float,
    dim: int,
    factor: float,
    beta_fast: float,
    beta_slow: float,
    original: int,
    truncate: bool,
) -> Doubles:
    """YaRN: channels that turn more than `beta_fast` times over `original` positions are kept, those that
    turn less than `beta_slow` times are divided by `factor`, with a linear ramp between."""

    def channel_of(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = channel_of(beta_fast), channel_of(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(len(frequencies)) - low) / (high - low), 0.0, 1.0)
    return np.asarray(frequencies / factor * ramp + frequencies * (1.0 - ramp), np.float64)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """YaRN's attention magnitude 0.1 * weight * ln(factor) + 1; 1 if nothing is stretched."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0
