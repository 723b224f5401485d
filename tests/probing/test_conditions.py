"""What a probe says of the way to the drive, beyond what the file itself shows."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from uringinfer.errors import EnvironmentError_
from uringinfer.probing import cells, conditions, probe
from uringinfer.storage.device import Device

LOOP = Device("loop7", None, None, None, "loop7", "the page cache")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cells, "_SECONDS", {"quick": 0.0})
    monkeypatch.setattr(conditions, "find_device", lambda fd: LOOP)
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(2 << 20))
    return path


def test_a_loop_device_that_caches_is_not_direct_whatever_the_file_on_it_says(data: Path) -> None:
    found = probe(data, mode="quick")
    assert (found.conditions.direct, found.conditions.direct_reason) == (
        False,
        "loop7 is read through the page cache",
    )
    assert found.verdict == "no drive was measured: loop7 is read through the page cache"


def test_direct_reads_that_are_required_of_a_loop_device_that_caches_are_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = r"data\.bin: no direct I/O: loop7 is read through the page cache"
    with pytest.raises(EnvironmentError_, match=message):
        probe(data, mode="quick", require_direct=True)
    monkeypatch.setattr(conditions, "find_device", lambda fd: replace(LOOP, cached_by=None))
    if not probe(data, mode="quick").conditions.direct:
        pytest.skip("the temporary directory has no direct I/O")
    assert probe(data, mode="quick", require_direct=True).conditions.direct
