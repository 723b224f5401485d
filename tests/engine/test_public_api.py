"""The package's front door, used as the README uses it."""

from __future__ import annotations

import pytest
from tiny_models import write_tiny_checkpoint

import uringinfer
from uringinfer.errors import UsageError


def test_a_checkpoint_becomes_text_through_the_public_functions_alone(tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    container = tmp_path / "model.uring"
    uringinfer.pack(checkpoint, container)
    assert not uringinfer.verify(container).damaged
    assert uringinfer.plan(container, budget="8G").plan.budget == 8 << 30
    with uringinfer.load(container, budget="8G") as engine:
        options = uringinfer.GenerationOptions(max_tokens=3, ignore_eos=True)
        assert len(engine.generate("Why is the sky blue?", options).tokens) == 3


def test_a_budget_that_is_no_size_is_refused(tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(UsageError, match="'much' is not a size"):
        uringinfer.plan(checkpoint, budget="much")
