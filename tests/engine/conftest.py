"""`packed(segment)` is the tiny model packed so; `native` and `numpy_model` have it open."""

import pytest
from tiny_models import Containers, write_tiny_checkpoint

from uringinfer.engine.opening import open_model
from uringinfer.planning.machine import resident_bytes


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    return Containers(write_tiny_checkpoint(directory / "checkpoint"), directory)


@pytest.fixture(scope="session")
def tiny(packed):
    """The tiny model, open, with whatever kernels this machine has."""
    return open_model(packed())


@pytest.fixture(scope="session")
def medium(tmp_path_factory):
    """11 MiB of weights in segments of 256 KiB, open: several huge pages, so that budgets differ."""
    directory = tmp_path_factory.mktemp("medium")
    sizes = {"layers": 6, "hidden": 256, "intermediate": 768, "vocab": 2000}
    return open_model(
        Containers(write_tiny_checkpoint(directory / "checkpoint", **sizes), directory)(1 << 18)
    )


@pytest.fixture(scope="session")
def native(packed):
    opened = open_model(packed())
    if opened.kernels.name != "native":
        pytest.skip(f"needs the native kernels: {'; '.join(opened.kernels.notes)}")
    return opened


@pytest.fixture(scope="session")
def with_numpy(packed):
    return open_model(packed(), native=False)


@pytest.fixture
def steady_memory(monkeypatch):
    """What this process holds is measured once, for a plan and for the loads that follow it: in between, what
    other tests left is given back, by which budgets would be off."""
    held = resident_bytes()
    monkeypatch.setattr("uringinfer.engine.loading.resident_bytes", lambda: held)
