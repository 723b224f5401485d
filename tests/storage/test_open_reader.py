from __future__ import annotations

import errno
import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from uringinfer.errors import EnvironmentError_
from uringinfer.storage import uring
from uringinfer.storage.denial import Denial
from uringinfer.storage.reader import open_reader


@pytest.fixture(autouse=True)
def _modules_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about what is chosen where nothing is forbidden, also in a run that forbids."""
    monkeypatch.delenv("URINGINFER_NATIVE", raising=False)


def deny_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = Denial("the test denies it", "stop testing")
    monkeypatch.setattr(uring, "open_ring", lambda depth: denied)


def test_auto_takes_the_ring_where_there_is_one() -> None:
    ring = uring.open_ring(1)
    if isinstance(ring, Denial):
        pytest.skip(f"no io_uring here: {ring.reason}")
    ring.close()
    reader = open_reader("auto")
    assert reader.name == "uring"
    reader.close()


def test_auto_falls_back_to_threads_and_notes_reason_and_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    deny_rings(monkeypatch)
    reader = open_reader("auto", queue_depth=3)
    assert reader.name == "preadv"
    assert reader.notes == [
        "io_uring cannot be used: the test denies it; 3 threads read instead; stop testing"
    ]
    reader.close()


def test_uring_that_was_asked_for_and_is_denied_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    deny_rings(monkeypatch)
    with pytest.raises(EnvironmentError_, match="io_uring cannot be used: the test denies it; stop testing"):
        open_reader("uring")


def test_preadv_that_was_asked_for_needs_no_note() -> None:
    reader = open_reader("preadv")
    assert (reader.name, reader.notes) == ("preadv", [])
    reader.close()


def test_the_environment_switches_the_ring_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URINGINFER_NATIVE", "0")
    reader = open_reader("auto")
    assert reader.name == "preadv"
    assert "URINGINFER_NATIVE=0" in reader.notes[0]
    reader.close()


def test_a_module_that_was_not_built_is_a_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", missing)
    denial = uring.open_ring(1)
    assert isinstance(denial, Denial)
    assert "not built" in denial.reason


def test_a_kernel_that_refuses_the_ring_is_a_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        URING_FIXED_FILE = 1
        URING_ASYNC = 2

        def uring_open(self, depth: int, pointer: object, flags: object) -> int:
            return -errno.ENOSYS

    module = SimpleNamespace(lib=Refusing(), ffi=SimpleNamespace(new=lambda kind: [None]))
    monkeypatch.setattr(importlib, "import_module", lambda name: module)
    denial = uring.open_ring(1)
    assert isinstance(denial, Denial)
    assert "Linux 5.6" in denial.remedy
