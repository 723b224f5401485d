"""What a probe reads, and what it calls a drive's speed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.container.container_maker import make_container
from uringinfer import probing
from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.planning.rates import Rates
from uringinfer.probing import cells as cells_module
from uringinfer.probing import possible_cells, probe
from uringinfer.probing import saved as saved_module
from uringinfer.probing import target as target_module
from uringinfer.probing.cells import IN_FLIGHT_BYTES, ProbeCell, Way, choose_cells
from uringinfer.probing.conditions import Conditions
from uringinfer.probing.report import ProbeReport, Row, judge_row
from uringinfer.probing.saved import SavedRate, save_rate, saved_rate
from uringinfer.probing.target import ModelReads, open_target
from uringinfer.storage.device import Device, find_device
from uringinfer.storage.throughput import Latency, Measurement, Pattern

MIB = 1 << 20
LATENCY = Latency(1e-3, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3)
CELL = ProbeCell(Way.REGISTERED, Pattern.RANDOM, 2 * MIB, 16)
CONDITIONS = Conditions(
    path="/data/(test file)",
    nbytes=1 << 30,
    is_test_file=True,
    filesystem="ext4",
    in_memory=False,
    data_share=1.0,
    device=Device("nvme0n1", "FAST", "PCIe 8 GT/s x4", 3.94e9, "FAST S1"),
    alignment=None,
    direct=True,
    direct_reason="ext4, the page cache stayed empty",
    kernel="6.1.0",
    ring_flags=("COOP_TASKRUN",),
    ring_denial=None,
    registration_note=None,
    arena_bytes=32 * MIB,
    huge_bytes=32 * MIB,
    memlock_soft=None,
    memory_limit=16 << 30,
    memory_limit_name="memory",
    cgroup_limits=(),
    memory_rate=10e9,
)


def measured(cell: ProbeCell = CELL, rate: float = 2e9, errors: int = 0) -> Measurement:
    """One second at `rate` bytes per second."""
    return Measurement(
        cell=cell.cell,
        reads=1000,
        nbytes=round(rate),
        seconds=1.0,
        short_reads=0,
        errors=errors,
        submit=LATENCY,
        complete=LATENCY,
        total=LATENCY,
        user_seconds=0.01,
        system_seconds=0.02,
        first_tenth=rate,
        last_tenth=rate / 2,
    )


def row(cell: ProbeCell = CELL, rate: float = 2e9, why: str | None = None) -> Row:
    return Row(cell, measured(cell, rate), 0.0, why)


@pytest.fixture(autouse=True)
def short_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells_module, "_SECONDS", {"quick": 0.0, "normal": 0.0, "full": 0.0})


@pytest.mark.parametrize(
    ("changes", "cached", "reason"),
    [
        ({"in_memory": True, "filesystem": "tmpfs"}, 0.0, "tmpfs has no device behind it"),
        ({"device": Device("loop0", None, None, None, "l", "memory")}, 0.0, "loop0 is read through memory"),
        ({"data_share": 0.25}, 0.0, "75% of the file are holes"),
        ({}, 0.5, "50% were in the page cache"),
        ({"device": Device("x", None, "PCIe 2.5 GT/s x1", 0.25e9, "x")}, 0.0, "faster than PCIe 2.5 GT/s x1"),
        ({"device": None, "memory_rate": 1e9}, 0.0, "faster than copying memory (1.00 GB/s)"),
    ],
)
def test_what_did_not_come_from_a_drive_is_told(
    changes: dict[str, object], cached: float, reason: str
) -> None:
    found = judge_row(replace(CONDITIONS, **changes), measured(), cached)  # type: ignore[arg-type]
    assert found is not None
    assert reason in found


def test_failed_reads_make_a_row_no_drives_speed() -> None:
    assert judge_row(CONDITIONS, measured(errors=3), 0.0) == "3 of 1000 reads failed"


def test_a_rate_below_the_bus_is_a_drives() -> None:
    assert judge_row(CONDITIONS, measured(), 0.0) is None


def test_the_best_row_is_the_fastest_drives_with_least_in_flight() -> None:
    deep = ProbeCell(Way.REGISTERED, Pattern.RANDOM, 2 * MIB, 64)
    slow = ProbeCell(Way.PREADV, Pattern.RANDOM, 4096, 1)
    rows = (row(deep, 2.02e9), row(CELL, 2e9), row(slow, 1e9), row(slow, 9e9, why="cached"))
    report = ProbeReport(CONDITIONS, None, rows)
    assert report.best is rows[1]
    assert report.verdict == "best: 2.00 MiB x QD 16, uring registered, random = 2.00 GB/s"


def test_the_verdict_predicts_tokens_per_second_of_a_model() -> None:
    model = ModelReads(record_bytes=0, segment_bytes=MIB, bytes_per_token=500_000_000)
    verdict = ProbeReport(CONDITIONS, model, (row(),)).verdict
    assert verdict.endswith("this model reads 0.500 GB per token cold: at most 4.00 tokens/s")


def test_without_a_drive_the_verdict_says_why() -> None:
    report = ProbeReport(CONDITIONS, None, (row(why="tmpfs has no device behind it"),) * 2)
    assert report.best is None
    assert report.verdict == "no drive was measured: tmpfs has no device behind it"


def test_json_has_fios_names_and_a_version() -> None:
    report = ProbeReport(CONDITIONS, None, (row(),)).to_json()
    assert report["schema_version"] == 1
    job = report["jobs"][0]
    assert job["jobname"] == "uring-registered-random-2097152-qd16" == report["best"]
    assert job["job options"] == {
        "rw": "randread",
        "bs": "2097152",
        "iodepth": "16",
        "ioengine": "io_uring",
        "direct": "1",
        "fixedbufs": "1",
        "registerfiles": "1",
    }
    read = job["read"]
    assert (read["io_bytes"], read["bw_bytes"], read["runtime"]) == (2_000_000_000, 2_000_000_000, 1000)
    assert read["clat_ns"]["percentile"]["99.900000"] == 4_000_000
    assert (job["usr_cpu"], job["sys_cpu"]) == (1.0, 2.0)
    assert (job["user_ms_per_gb"], job["system_ms_per_gb"]) == (5.0, 10.0)
    assert (job["first_tenth_bw_bytes"], job["last_tenth_bw_bytes"]) == (2_000_000_000, 1_000_000_000)


def test_cells_stay_within_the_file_and_the_memory() -> None:
    for mode in ("quick", "normal", "full"):
        cells, _ = choose_cells(mode, 1 << 30, (8192, 64 * MIB))  # type: ignore[arg-type]
        assert all(cell.block_bytes * cell.queue_depth <= IN_FLIGHT_BYTES for cell in cells)
        assert len(cells) == len(set(cells))
        assert {8192, 64 * MIB} <= {cell.block_bytes for cell in cells}
        assert {cell.way for cell in cells} == set(Way)
    assert choose_cells("full", 4095)[0] == []


def test_quick_keeps_its_promise_of_twenty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    cells, seconds = choose_cells("quick", 1 << 30, (8192, 64 * MIB))
    assert len(cells) * seconds <= 12  # the rest is for writing a GiB


def test_without_a_ring_threads_read_the_same_cells() -> None:
    cells, _ = choose_cells("quick", 1 << 30, (8192,))
    left = possible_cells(cells, replace(CONDITIONS, ring_denial="seccomp"))
    assert {cell.way for cell in left} == {Way.PREADV, Way.BUFFERED}
    past_the_cache = [shape(cell) for cell in left if cell.way is Way.PREADV]
    assert set(past_the_cache) == {shape(cell) for cell in cells if cell.way is not Way.BUFFERED}
    assert len(past_the_cache) == len(set(past_the_cache))


def shape(cell: ProbeCell) -> tuple[Pattern, int, int]:
    return cell.pattern, cell.block_bytes, cell.queue_depth


def test_memory_that_cannot_be_registered_is_read_unregistered() -> None:
    cells, _ = choose_cells("quick", 1 << 30)
    left = possible_cells(cells, replace(CONDITIONS, registration_note="memlock"))
    assert Way.REGISTERED not in {cell.way for cell in left}
    assert ProbeCell(Way.URING, Pattern.RANDOM, 4096, 1) in left
    assert len(left) == len(set(left))


def test_a_directory_gets_a_test_file_that_is_gone_afterwards(tmp_path: Path) -> None:
    report = probe(tmp_path, mode="quick", size=8 * MIB)
    assert report.conditions.is_test_file
    assert report.conditions.nbytes == 8 * MIB
    assert report.rows
    assert all(row.measured.nbytes > 0 for row in report.rows)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_read_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(2 * MIB))
    before = path.stat()
    report = probe(path, mode="quick")
    assert report.conditions.path == str(path)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert not report.conditions.is_test_file


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    path = Path(f"/dev/shm/uringinfer-probe-test-{os.getpid()}")
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"/dev/shm cannot be written: {error}")
    yield path
    path.rmdir()


def test_tmpfs_is_never_called_a_drive(tmpfs: Path) -> None:
    report = probe(tmpfs, mode="quick", size=4 * MIB)
    assert report.rows
    assert report.best is None
    assert report.verdict == "no drive was measured: tmpfs has no device behind it"


def test_direct_reads_that_are_required_of_tmpfs_are_an_error_that_names_it(tmpfs: Path) -> None:
    with pytest.raises(EnvironmentError_, match=r"\(test file\): no direct I/O: tmpfs"):
        probe(tmpfs, mode="quick", size=4 * MIB, require_direct=True)


def test_a_file_in_the_page_cache_is_called_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(32 * MIB))
    monkeypatch.setattr(probing, "evict", lambda fd, offset, nbytes: None)  # as if the pages were in use
    path.read_bytes()
    report = probe(path, mode="quick")
    rows = [row for row in report.rows if row.cell.way is Way.BUFFERED or not report.conditions.direct]
    assert rows
    assert all("in the page cache" in (row.not_a_drive or "") for row in rows)


def test_a_file_that_was_evicted_is_read_from_its_drive(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(32 * MIB))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    path.read_bytes()
    report = probe(path, mode="quick")
    if report.conditions.in_memory:
        pytest.skip(f"no drive here: {report.verdict}")
    assert [row.cached_share for row in report.rows if row.cell.way is Way.BUFFERED] == [0.0]


def test_a_sparse_file_has_no_device_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "sparse.bin"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
    report = probe(path, mode="quick")
    assert report.best is None
    assert "100% of the file are holes" in report.verdict or report.conditions.in_memory


def test_a_file_that_is_too_small_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "small.bin"
    path.write_bytes(bytes(4096))
    with pytest.raises(UsageError, match=r"small\.bin: 4\.00 KiB are too little"):
        probe(path, mode="quick")


def test_a_container_is_read_at_the_sizes_of_its_records_and_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_container(tmp_path / "model.uring")
    monkeypatch.setattr(
        target_module, "model_from_config", lambda config: SimpleNamespace(experts_per_token=2)
    )
    monkeypatch.setattr(target_module, "MIN_FILE_BYTES", 4096)
    with open_target(tmp_path / "model.uring", "quick") as target:
        assert target.model == ModelReads(
            record_bytes=8192, segment_bytes=8192, bytes_per_token=4096 + 3 * 8192 + 2 * 8192
        )
        assert target.block_sizes == (8192, 8192)
        assert target.file.path.name == "experts-L1.bin"


def test_a_rate_is_kept_for_its_drive_and_found_by_any_path_on_it(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    device = find_device(fd)
    os.close(fd)
    if device is None:
        pytest.skip("no block device behind the temporary directory")
    report = ProbeReport(replace(CONDITIONS, device=device), None, (row(),))
    where = save_rate(report, tmp_path / "cache")
    found = saved_rate(tmp_path, tmp_path / "cache")
    assert where.parent == tmp_path / "cache"
    assert found == SavedRate(
        bytes_per_second=2e9, block_bytes=2 * MIB, queue_depth=16, way="uring registered"
    )


def test_the_latency_of_a_lone_small_read_is_kept_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device("x", None, None, None, "KEY")
    monkeypatch.setattr(saved_module, "find_device", lambda fd: device)
    lone = row()
    lone = replace(
        lone,
        cell=replace(lone.cell, block_bytes=4096, queue_depth=1),
        measured=replace(lone.measured, total=Latency(8e-5, 0, 0, 0, 0, 0), nbytes=4096),
    )
    cached = replace(
        lone, measured=replace(lone.measured, total=Latency(1e-6, 0, 0, 0, 0, 0)), not_a_drive="cached"
    )
    ahead = replace(cached, cell=replace(lone.cell, pattern=Pattern.SEQUENTIAL), not_a_drive=None)
    buffered = replace(cached, cell=replace(lone.cell, way=Way.BUFFERED), not_a_drive=None)
    rows = (row(), lone, cached, ahead, buffered)
    save_rate(ProbeReport(replace(CONDITIONS, device=device), None, rows), tmp_path)

    found = saved_rate(tmp_path, tmp_path)

    assert found is not None
    rates = found.completing(Rates(compute=1e10))
    assert (rates.drive, rates.latency, rates.compute) == (2e9, 8e-5, 1e10)
    assert (rates.drive_origin, rates.latency_origin, rates.compute_origin) == (
        "saved by probe",
        "saved by probe",
        "given",
    )


def test_saving_replaces_no_pipe_and_leaves_a_link_one(tmp_path: Path) -> None:
    report = ProbeReport(replace(CONDITIONS, device=Device("x", None, None, None, "S1")), None, (row(),))
    os.mkfifo(tmp_path / "drives.json")
    with pytest.raises(EnvironmentError_, match="it is no regular file"):
        save_rate(report, tmp_path)
    (tmp_path / "drives.json").unlink()
    (tmp_path / "drives.json").symlink_to("there/drives.json")
    save_rate(report, tmp_path)
    assert (tmp_path / "drives.json").is_symlink()
    assert "S1" in (tmp_path / "there" / "drives.json").read_text()


def test_saving_keeps_other_drives(tmp_path: Path) -> None:
    for name in ("S1", "S2"):
        device = Device("x", None, None, None, name)
        save_rate(ProbeReport(replace(CONDITIONS, device=device), None, (row(),)), tmp_path)
    assert set(json.loads((tmp_path / "drives.json").read_text())) == {"S1", "S2"}


def test_a_save_that_fails_leaves_the_older_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = ProbeReport(replace(CONDITIONS, device=Device("x", None, None, None, "S1")), None, (row(),))
    (tmp_path / "drives.json").write_text("{}")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentError_, match="No space left on device"):
        save_rate(report, tmp_path)
    assert (tmp_path / "drives.json").read_text() == "{}"
    assert [file.name for file in tmp_path.iterdir()] == ["drives.json"]


def test_a_pipe_has_no_rates_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "drives.json")
    assert saved_rate(tmp_path, tmp_path) is None


def test_a_drive_that_was_never_probed_has_no_rate(tmp_path: Path) -> None:
    assert saved_rate(tmp_path, tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", '{"KEY": {"speed": 1}}', '{"KEY": 3}'])
def test_a_damaged_file_of_rates_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(saved_module, "find_device", lambda fd: Device("x", None, None, None, "KEY"))
    (tmp_path / "drives.json").write_text(text)
    assert saved_rate(tmp_path, tmp_path) is None


def test_nothing_is_saved_where_no_drive_was_measured(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentError_, match="nothing to save: no drive was measured"):
        save_rate(ProbeReport(CONDITIONS, None, (row(why="tmpfs has no device behind it"),)), tmp_path)
    assert list(tmp_path.iterdir()) == []
