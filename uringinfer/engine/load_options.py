"""How a model is to be loaded: the options, with their defaults, checked before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass

from uringinfer.planning.planner import Placement
from uringinfer.residency.policies import DEFAULT_POLICY
from uringinfer.storage.reader import ReaderKind
from uringinfer.units import as_bytes

DEFAULT_CHUNK = 128
"""Tokens of the prompt fed in one pass over the weights."""
DEFAULT_CONTEXT = 4096
DEFAULT_LOOKAHEAD = 6
"""Experts of the next layer that a decode step guesses."""
CONTEXT_STEP = 256
"""A context derived from a prompt is rounded up to a multiple of this."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to load. `budget` None takes what the machine grants; `context` None takes `DEFAULT_CONTEXT`, or
    the model's if that is shorter. `all_logits` leaves room for the logits of every position of a chunk.
    `parallel` is how many conversations the memory has room for at once, each of `context` tokens; they may
    share passes (`engine/batch.py`). `guesses` is how many tokens a pass may check ahead
    (`engine/drafts.py`); None is as many as are of use, unless they would take memory from weights.
    `verify_reads` checks everything that is read before it is used. `timeline` records what the last passes
    did when. `snapshots` is how many places each conversation can go back to, where the model has a recurrent
    state or windows: as many of them as the budget has room for. Sizes are bytes; text such as "8G" becomes
    bytes."""

    budget: int | None = None
    context: int | None = None
    chunk: int = DEFAULT_CHUNK
    io: ReaderKind = "auto"
    placement: Placement = "spread"
    ring_slots: int = 2
    trunk_budget: int | None = None
    cache_budget: int | None = None
    cache_policy: str = DEFAULT_POLICY
    lookahead: int = DEFAULT_LOOKAHEAD
    all_logits: bool = False
    parallel: int = 1
    guesses: int | None = None
    verify_reads: bool = True
    poison_slots: bool = False
    timeline: bool = False
    snapshots: int = 0

    def __post_init__(self) -> None:
        """Raises UsageError for what is no size."""
        for name in ("budget", "trunk_budget", "cache_budget"):
            object.__setattr__(self, name, as_bytes(getattr(self, name), name))
