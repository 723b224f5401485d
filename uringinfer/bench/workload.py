"""What a benchmark feeds: so many tokens at once, or one after the other, behind a context of some depth.

Tokens are drawn from the whole vocabulary with a fixed seed, so no tokenizer is needed and two runs feed the
same. A mixture of experts routes random tokens more evenly than text: its cache hits less than it would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from uringinfer.errors import UsageError

_SEED = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """`kind` "pp" feeds a prompt of `tokens` tokens in chunks, "tg" feeds them one at a time, as decoding
    does; both behind `depth` tokens that are not timed. Raises UsageError for fewer tokens than one."""

    kind: Literal["pp", "tg"]
    tokens: int
    depth: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.depth < 0:
            raise UsageError(
                f"{self.tokens} tokens behind {self.depth} cannot be measured", hint="give 1 or more"
            )

    @property
    def name(self) -> str:
        """As llama-bench names it: "pp512", "tg128 @ d1024"."""
        return f"{self.kind}{self.tokens}" + (f" @ d{self.depth}" if self.depth else "")

    @property
    def context(self) -> int:
        """Positions that it fills."""
        return self.depth + self.tokens

    def ids(self, vocab_size: int, conversation: int = 0) -> list[int]:
        """The tokens of depth and workload, `context` of them; each conversation has its own."""
        generator = np.random.default_rng(_SEED + conversation)
        ids: list[int] = generator.integers(vocab_size, size=self.context).tolist()
        return ids


def workloads_of(prompt: int, generated: int, depth: int) -> list[Workload]:
    """The workloads of `-p`, `-n` and `-d`; 0 leaves one out. Raises UsageError if both are 0."""
    chosen = [Workload("pp", prompt, depth)] if prompt else []
    chosen += [Workload("tg", generated, depth)] if generated else []
    if not chosen:
        raise UsageError("nothing to measure: -p and -n are both 0", hint="give one of them")
    return chosen
