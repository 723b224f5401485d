"""Chooses the next token from logits.

The order is llama.cpp's: repetition penalty, top-k, top-p, min-p, temperature, draw. So the filters see the
model's own probabilities and the temperature only reshapes what they left (transformers applies the
temperature first, and then the same settings keep more tokens at high temperatures).

Ties go to the lower id everywhere: in greedy choice, at the edge of top-k and top-p, and in the order of the
draw. One seed gives one answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import IntegrityError, UsageError

Logits = NDArray[np.float32]
_FIRST_LOOK = 1024
"""How many of the likeliest tokens top-p looks at before it sorts the whole vocabulary."""


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How to choose. The defaults are greedy; every filter's neutral value switches it off.

    `temperature` 0 is greedy. `top_k` 0 keeps all. `top_p` keeps the likeliest tokens up to the first that
    makes their sum reach it. `min_p` drops tokens below this share of the likeliest one's probability.
    `repeat_penalty` divides positive and multiplies negative logits of tokens among the last `repeat_window`
    (-1: all, 0: none). `seed` None draws one, which `Sampler.seed` then tells.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    repeat_window: int = 64
    seed: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageError naming the option, its value and what is allowed."""
        _check("temperature", self.temperature, 0 <= self.temperature < math.inf, "0 or more")
        _check("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "more than 0, at most 1 (off)")
        _check("min_p", self.min_p, 0 <= self.min_p <= 1, "from 0 (off) to 1")
        _check(
            "repeat_penalty", self.repeat_penalty, 0 < self.repeat_penalty < math.inf, "more than 0; 1 is off"
        )
        _check("repeat_window", self.repeat_window, self.repeat_window >= -1, "-1 (all), 0 (none) or more")
        _check("seed", self.seed, self.seed is None or self.seed >= 0, "0 or more")


class Sampler:
    """Draws tokens with one set of options; its generator (PCG64) moves on by one number per drawn token.

    `draws` counts them; a sampler made with that count goes on where the other stood.
    """

    def __init__(self, options: SamplingOptions, draws: int = 0) -> None:
        self.options = options
        self.seed: int = (
            int(np.random.SeedSequence().generate_state(1)[0]) if options.seed is None else options.seed
        )
        self.draws = draws
        self._generator = np.random.Generator(np.random.PCG64(self.seed).advance(draws))

    def twin(self) -> Sampler:
        """Another sampler that will draw what this one would; neither moves the other on."""
        return Sampler(replace(self.options, seed=self.seed), self.draws)

    def pick(self, logits: Logits, recent_ids: Sequence[int] = ()) -> int:
        """The next token's id. logits [vocab] float32 are left as they are; `recent_ids` end with the newest.

        Raises IntegrityError if a logit is NaN or +inf, or if all are -inf: the weights or the state are
        damaged, and any token would be made up.
        """
        logits = self._penalised(logits, recent_ids)
        largest = logits.max()
        if not np.isfinite(largest):
            damaged = int(np.count_nonzero(np.isnan(logits) | np.isposinf(logits)))
            raise IntegrityError(
                f"the model gave no usable logits ({damaged} of {logits.size} are NaN or infinite)",
                hint="check the weights with 'uringinfer verify'",
            )
        if self.options.temperature == 0:
            return int(logits.argmax())
        ids, probabilities = self.distribution(logits)
        cumulative = np.cumsum(probabilities)
        self.draws += 1
        drawn = self._generator.random() * cumulative[-1]
        place = np.searchsorted(cumulative, drawn, side="right")
        last = np.searchsorted(cumulative, cumulative[-1], side="left")  # behind it all have probability 0
        return int(ids[min(place, last)])

    def distribution(self, logits: Logits) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """What the filters and the temperature leave of logits [vocab]: ids [n], likeliest first, and their
        probabilities [n], which sum to 1. For a temperature above 0; the repetition penalty comes before."""
        options = self.options
        largest = float(logits.max())
        total: float | None = None  # sum of exp over what top-k left
        if options.top_k:
            ids = _largest(logits, options.top_k)
        elif options.top_p < 1:
            total = float(np.exp(logits.astype(np.float64) - largest).sum())
            ids = _largest(logits, _FIRST_LOOK)
            if np.exp(logits[ids].astype(np.float64) - largest).sum() < options.top_p * total:
                ids = _largest(logits, logits.size)
        else:
            ids = _largest(logits, logits.size)
        shifted = logits[ids].astype(np.float64) - largest
        weights = np.exp(shifted)
        if options.top_p < 1:
            reached = np.cumsum(weights) >= options.top_p * (weights.sum() if total is None else total)
            shifted = shifted[: int(reached.argmax()) + 1 if reached.any() else None]
        if options.min_p > 0:
            shifted = shifted[: int(np.count_nonzero(shifted >= math.log(options.min_p)))]
        with np.errstate(over="ignore"):
            tempered = np.exp(shifted / options.temperature)
        return ids[: len(shifted)], tempered / tempered.sum()

    def _penalised(self, logits: Logits, recent_ids: Sequence[int]) -> Logits:
        window, penalty = self.options.repeat_window, self.options.repeat_penalty
        if penalty == 1 or window == 0:
            return logits
        recent = np.unique(np.asarray(recent_ids if window < 0 else recent_ids[-window:], dtype=np.int64))
        recent = recent[recent < logits.size]
        logits = logits.copy()
        seen = logits[recent]
        logits[recent] = np.where(seen > 0, seen / np.float32(penalty), seen * np.float32(penalty))
        return logits


def _largest(logits: Logits, count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest logits, largest first, equal ones by id."""
    if count < logits.size:
        threshold = np.partition(logits, logits.size - count)[logits.size - count]
        candidates = np.flatnonzero(logits >= threshold)
    else:
        candidates = np.arange(logits.size)
    return candidates[_descending(logits[candidates])[:count]].astype(np.int64, copy=False)


def _descending(values: Logits) -> NDArray[np.int64]:
    """Places of float32 values [n], none of them NaN, in descending order, equal ones by place.

    Sorts one integer for each, the value above its place: less than half the time of a stable argsort.
    """
    bits = (np.float32(0) - values).view(np.int32)  # negative zero becomes zero
    ascending = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # as integers in the order of the floats
    keys = ascending.astype(np.int64) << 32 | np.arange(values.size)
    keys.sort()
    return keys & 0xFFFFFFFF


def _check(name: str, value: float | None, allowed: bool, range_text: str) -> None:
    if not allowed:
        raise UsageError(f"{name} is {value}", hint=f"it must be {range_text}")
