"""The router of a mixture of experts: which experts a token takes, and their shares.

Everything here is decided token by token, in an order that does not depend on the other tokens. Ties go to
the expert (or group) with the lower number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from uringinfer.kernels import Kernels
from uringinfer.layers.weights import Floats

SHARE_EPS = np.float32(1e-20)
"""Added to the sum that shares are divided by, as the released routers do."""


@dataclass(frozen=True, slots=True)
class Routing:
    """`experts` int64 [T, K], best first; `shares` float32 [T, K], what each one's output is multiplied
    by."""

    experts: NDArray[np.int64]
    shares: Floats


@dataclass(frozen=True, slots=True)
class Router:
    """How logits become a choice.

    `scoring`: each logit through its own sigmoid, or a softmax over all experts. `renormalize` divides the
    chosen shares by their sum; `scaling` multiplies them. With `num_groups` > 1 the experts are split into
    groups of neighbours, of which the best `top_groups` are kept; a group is worth its best expert
    (`group_score` 'best') or the sum of its two best ('best_two').
    """

    top_k: int
    scoring: Literal["sigmoid", "softmax"]
    renormalize: bool
    scaling: float = 1.0
    num_groups: int = 1
    top_groups: int = 1
    group_score: Literal["best", "best_two"] = "best_two"

    def route(self, kernels: Kernels, logits: Floats, bias: Floats | None = None) -> Routing:
        """Logits [T, N], and a `bias` [N] on the scores that counts for the choice only -> Routing."""
        scores = self.scores(kernels, logits)
        experts = self.best(scores, bias, self.top_k)
        shares = scores[np.arange(len(scores))[:, None], experts]
        if self.renormalize:
            shares = shares / (_sum_of_columns(shares) + SHARE_EPS)
        return Routing(experts, shares * np.float32(self.scaling))

    def guess(self, kernels: Kernels, logits: Floats, bias: Floats | None, count: int) -> NDArray[np.int64]:
        """The `count` experts [T, count] that logits [T, N] and `bias` [N] speak for, best first."""
        if bias is None and self.num_groups == 1:  # scores are in the order of the logits
            return _best(logits, count)
        return self.best(self.scores(kernels, logits), bias, count)

    def scores(self, kernels: Kernels, logits: Floats) -> Floats:
        """What shares come from: [T, N]."""
        return kernels.sigmoid(logits) if self.scoring == "sigmoid" else kernels.softmax(logits)

    def best(self, scores: Floats, bias: Floats | None, count: int) -> NDArray[np.int64]:
        """The `count` experts [T, count] with the best scores [T, N] plus `bias` [N], best first."""
        ranked = scores if bias is None else scores + bias
        if self.num_groups > 1:
            ranked = self._keep_best_groups(ranked)
        return _best(ranked, count)

    def _keep_best_groups(self, ranked: Floats) -> Floats:
        """[T, N] with minus infinity for every expert outside the best groups."""
        grouped = ranked.reshape(len(ranked), self.num_groups, -1)
        worth = grouped.max(axis=2)
        if self.group_score == "best_two":
            worth = worth + np.partition(grouped, -2, axis=2)[:, :, -2]
        kept = np.full_like(grouped, -np.inf)
        tokens = np.arange(len(ranked))[:, None]
        best = _best(worth, self.top_groups)
        kept[tokens, best] = grouped[tokens, best]
        return kept.reshape(ranked.shape)


def _best(values: Floats, count: int) -> NDArray[np.int64]:
    """Columns of the `count` largest values of each row [T, N] -> [T, count], largest first."""
    return np.argsort(-values, axis=1, kind="stable")[:, :count].astype(np.int64)


def _sum_of_columns(values: Floats) -> Floats:
    """[T, K] -> [T, 1], added from left to right: numpy's own sum may pair its terms."""
    total = np.zeros((len(values), 1), np.float32)
    for column in range(values.shape[1]):
        total += values[:, column : column + 1]
    return total
