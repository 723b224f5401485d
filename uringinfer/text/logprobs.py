"""How likely the model found a token, and what else it found likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The natural logarithm of a token's probability, and the likeliest tokens with theirs, likeliest first.

    Probabilities are the model's own: before penalties, filters, bias, mask and temperature.
    """

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()

    def to_json(self) -> dict[str, Any]:
        top = [{"id": token, "logprob": logprob} for token, logprob in self.top]
        return {"id": self.id, "logprob": self.logprob, "top": top}


def read_logprobs(logits: NDArray[np.float32], token: int, count: int) -> TokenLogprobs:
    """Of logits [vocab]: those of `token` and of the `count` likeliest; equal ones by id."""
    shifted = logits.astype(np.float64) - float(logits.max())
    logprobs = shifted - np.log(np.exp(shifted).sum())
    best = np.argsort(-logits, kind="stable")[:count] if count else np.zeros(0, np.int64)
    return TokenLogprobs(
        int(token), float(logprobs[token]), tuple((int(number), float(logprobs[number])) for number in best)
    )
