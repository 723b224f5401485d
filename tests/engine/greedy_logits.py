"""What tests of the first law compare: all logits of a prompt and of some greedy steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from uringinfer.engine.engine import Engine
from uringinfer.engine.loading import LoadOptions, OpenModel
from uringinfer.errors import EnvironmentError_
from uringinfer.models.base import Floats


def load_for_logits(opened: OpenModel, **options: Any) -> Engine:
    """Loaded with room for all logits and with poisoned slots; skips where the reader is not there."""
    settings = {"context": 64, "all_logits": True, "poison_slots": True} | options
    try:
        return opened.load(LoadOptions(**settings))
    except EnvironmentError_ as error:
        pytest.skip(str(error))


def greedy_logits(engine: Engine, prompt: Sequence[int], steps: int) -> Floats:
    """Float32 [len(prompt) + steps, vocab], of a new session."""
    session = engine.session()
    rows = [session.feed(prompt, all_logits=True)]
    for _ in range(steps):
        rows.append(session.step(int(rows[-1][-1].argmax()))[None])
    return np.concatenate(rows)
