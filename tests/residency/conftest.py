"""Fixtures of the residency tests."""

import pytest
from expert_bench import Bench


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)
