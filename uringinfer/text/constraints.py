"""What a caller lets a model choose: a bias of single tokens, and a mask that says what may come next.

Constrained decoding plugs in as a mask. Both act on the logits before the sampler sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import UsageError

Logits = NDArray[np.float32]
Allowed = Iterable[int] | NDArray[np.bool_] | None
"""Token numbers, or one boolean for each token of the vocabulary; None allows everything."""
Mask = Callable[[Sequence[int]], Allowed]
"""Called with the ids of the reply so far, before each of its tokens."""


def constrain(logits: Logits, bias: Mapping[int, float], allowed: Allowed = None) -> Logits:
    """A copy of logits [vocab] with `bias` added, and -inf wherever `allowed` does not allow.

    Raises UsageError for tokens outside the vocabulary, and if nothing is allowed.
    """
    logits = logits.copy()
    for token, value in bias.items():
        if not 0 <= token < logits.size:
            raise UsageError(f"logit_bias: token {token} is outside the vocabulary of {logits.size}")
        logits[token] += np.float32(value)
    if allowed is None:
        return logits
    permitted = _permitted(allowed, logits.size)
    if not permitted.any():
        raise UsageError("the mask allows no token at all", hint="let it allow an end token at least")
    logits[~permitted] = -np.inf
    return logits


def _permitted(allowed: Iterable[int] | NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    if isinstance(allowed, np.ndarray) and allowed.dtype == np.bool_:
        if allowed.ndim != 1 or len(allowed) > size:
            raise UsageError(f"the mask has the shape {list(allowed.shape)} and the vocabulary {size} tokens")
        return np.pad(allowed, (0, size - len(allowed)))
    ids = np.fromiter(allowed, np.int64)
    wrong = ids[(ids < 0) | (ids >= size)]
    if len(wrong):
        raise UsageError(f"the mask allows token {wrong[0]}, outside the vocabulary of {size}")
    permitted = np.zeros(size, np.bool_)
    permitted[ids] = True
    return permitted
