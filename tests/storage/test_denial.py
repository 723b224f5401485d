from __future__ import annotations

import errno
from pathlib import Path

import pytest

from uringinfer.storage.denial import import_denial, registration_note, setup_denial


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "self/status").write_text("Name:\tpython\nSeccomp:\t0\nSeccomp_filters:\t0\n")
    (tmp_path / "sys/kernel/io_uring_disabled").write_text("0\n")
    return tmp_path


def filter_system_calls(proc: Path) -> None:
    (proc / "self/status").write_text("Name:\tpython\nSeccomp:\t2\nSeccomp_filters:\t1\n")


@pytest.mark.parametrize(("value", "whom"), [("2", "for all processes"), ("1", "io_uring_group")])
def test_eperm_with_the_sysctl_set_names_the_sysctl(proc: Path, value: str, whom: str) -> None:
    (proc / "sys/kernel/io_uring_disabled").write_text(value + "\n")
    filter_system_calls(proc)  # both may be: the sysctl is certain, the filter only possible
    denial = setup_denial(errno.EPERM, proc=proc)
    assert f"kernel.io_uring_disabled={value}" in denial.reason
    assert whom in denial.reason
    assert "sysctl kernel.io_uring_disabled=0" in denial.remedy


def test_eperm_under_a_filter_names_seccomp_and_the_containers_option(proc: Path) -> None:
    filter_system_calls(proc)
    denial = setup_denial(errno.EPERM, proc=proc)
    assert "seccomp" in denial.reason
    assert "--security-opt seccomp=" in denial.remedy


def test_eperm_without_sysctl_or_filter_points_to_the_kernels_log(proc: Path) -> None:
    denial = setup_denial(errno.EPERM, proc=proc)
    assert "EPERM" in denial.reason
    assert "dmesg" in denial.remedy


def test_enosys_names_the_old_kernel(proc: Path) -> None:
    denial = setup_denial(errno.ENOSYS, proc=proc, release="5.4.0-generic")
    assert "5.4.0-generic" in denial.reason
    assert "Linux 5.6" in denial.remedy


def test_enosys_under_a_filter_on_a_new_kernel_names_seccomp(proc: Path) -> None:
    filter_system_calls(proc)
    assert "seccomp" in setup_denial(errno.ENOSYS, proc=proc, release="6.1.0-13-amd64").reason


def test_enosys_under_a_filter_on_an_old_kernel_names_the_kernel(proc: Path) -> None:
    filter_system_calls(proc)
    assert "5.4.0" in setup_denial(errno.ENOSYS, proc=proc, release="5.4.0").reason


def test_enomem_names_the_memlock_limit(proc: Path) -> None:
    assert "RLIMIT_MEMLOCK" in setup_denial(errno.ENOMEM, proc=proc, release="5.10.0").remedy


def test_a_missing_proc_still_gives_an_answer(tmp_path: Path) -> None:
    assert "EPERM" in setup_denial(errno.EPERM, proc=tmp_path / "nowhere").reason


def test_a_module_that_was_not_built_is_told_from_a_library_that_is_gone() -> None:
    assert (
        "not built"
        in import_denial(ModuleNotFoundError("No module named 'uringinfer.storage._uring'")).reason
    )
    gone = import_denial(ImportError("liburing.so.2: cannot open shared object file"))
    assert "liburing.so.2" in gone.reason
    assert "liburing2" in gone.remedy


def test_memory_that_may_not_be_pinned_is_told_with_all_three_numbers() -> None:
    note = registration_note(errno.ENOMEM, 4 << 30, (8 << 20, -1))
    assert "pin 4.00 GiB" in note
    assert "soft limit 8.00 MiB, hard limit unlimited" in note
    assert "ulimit -l" in note
    assert "LimitMEMLOCK" in note


def test_another_reason_for_not_registering_is_named() -> None:
    assert "Operation not supported" in registration_note(errno.EOPNOTSUPP, 4 << 30, (0, 0))
