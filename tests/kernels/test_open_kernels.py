import sys

import pytest

from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.kernels import open_kernels
from uringinfer.kernels.cpus import usable_cpus


@pytest.fixture(autouse=True)
def _modules_are_allowed(monkeypatch):
    """These tests are about what is chosen where nothing is forbidden, also in a run that forbids."""
    monkeypatch.delenv("URINGINFER_NATIVE", raising=False)


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_numpy_kernels_can_be_asked_for_and_need_no_excuse():
    kernels = open_kernels(native=False, threads=3)
    assert (kernels.name, kernels.threads, kernels.notes) == ("numpy", 3, [])


@pytest.mark.parametrize("threads", [0, 257, 10**12])
def test_threads_that_cannot_be_are_refused(threads):
    with pytest.raises(UsageError, match=f"{threads} threads"):
        open_kernels(threads=threads)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/a/b/cpu.max": "max 100000",
                "sys/a/cpu.max": "200000 100000",
            },
            2,
        ),
        ({"proc/self/cgroup": "0::/a\n", "sys/a/cpu.max": "50000 100000"}, 1),
        (
            {
                "proc/self/cgroup": "3:memory:/x\n1:cpu,cpuacct:/job\n",
                "sys/cpu/job/cpu.cfs_quota_us": "350000\n",
                "sys/cpu/job/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/elsewhere\n",
                "sys/cpu/cpu.cfs_quota_us": "-1",
                "sys/cpu/cpu.cfs_period_us": "100000",
            },
            8,
        ),
        ({}, 8),
    ],
)
def test_usable_cpus_are_the_affinity_or_the_smaller_cgroup_quota(tmp_path, monkeypatch, files, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    write(tmp_path, files)
    assert usable_cpus(tmp_path / "proc", tmp_path / "sys") == expected


def test_native_kernels_are_taken_if_they_are_built(native):
    assert native(1).name == "native"
    kernels = open_kernels(threads=2)
    assert (kernels.name, kernels.threads, kernels.notes) == ("native", 2, [])
    assert kernels.simd in ("avx512", "avx2", "portable")


def test_the_simd_level_can_be_chosen(native):
    simd = native(1).simd
    assert open_kernels(simd=simd).simd == simd
    with pytest.raises(UsageError, match="no 'mmx' kernels; choose one of"):
        open_kernels(native=True, simd="mmx")


def test_without_the_extension_numpy_takes_over_and_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "uringinfer.kernels._kernels", None)
    for name in ("native_kernels", "native_recurrent", "native_call", "native_library"):
        monkeypatch.delitem(sys.modules, f"uringinfer.kernels.{name}", raising=False)
    kernels = open_kernels()
    assert kernels.name == "numpy"
    assert len(kernels.notes) == 1
    assert "not built" in kernels.notes[0] and "build_ext" in kernels.notes[0]
    with pytest.raises(EnvironmentError_, match="not built"):
        open_kernels(native=True)


def test_the_environment_can_forbid_the_native_kernels(monkeypatch):
    monkeypatch.setenv("URINGINFER_NATIVE", "0")
    kernels = open_kernels()
    assert kernels.name == "numpy"
    assert "URINGINFER_NATIVE=0" in kernels.notes[0]
