"""Each check of the machine, on a /proc and /sys of the test's own."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from uringinfer.diagnosis import machine_checks
from uringinfer.diagnosis.findings import Status
from uringinfer.planning.machine import Bound, Machine
from uringinfer.storage.denial import Denial

GIB = 1 << 30
MACHINE = Machine(
    memory_total=16 * GIB,
    memory_available=12 * GIB,
    resident=GIB,
    swap_total=0,
    swap_free=0,
    memlock_soft=None,
    memlock_hard=None,
    bounds=(Bound("memory available on this machine", 16 * GIB, 13 * GIB),),
)


@pytest.fixture
def roots(tmp_path):
    """Empty /proc and /sys, and a function that writes a file below them."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    (tmp_path / "proc").mkdir()
    (tmp_path / "sys").mkdir()
    return SimpleNamespace(proc=tmp_path / "proc", sys=tmp_path / "sys", write=write)


@pytest.mark.parametrize(
    ("release", "status"),
    [
        ("6.1.0-18-amd64", Status.OK),
        ("6.18.44", Status.OK),
        ("5.15.0-91-generic", Status.NOTE),
        ("4.19.0", Status.NOTE),
    ],
)
def test_a_kernel_is_judged_by_what_the_reader_can_use(release, status):
    assert machine_checks.check_kernel(release).status is status


def test_a_denied_ring_is_a_note_with_cause_and_remedy():
    finding = machine_checks.check_io_uring(Denial("a seccomp filter denies it", "change the profile"), None)
    assert finding.status is Status.NOTE
    assert "threads read instead: a seccomp filter denies it" in finding.message
    assert finding.remedy == "change the profile"


def test_an_open_ring_names_its_flags():
    finding = machine_checks.check_io_uring(SimpleNamespace(flags=["SINGLE_ISSUER", "DEFER_TASKRUN"]), "2.3")
    assert finding.status is Status.OK
    assert "SINGLE_ISSUER, DEFER_TASKRUN; liburing 2.3" in finding.message


def test_numpy_kernels_are_a_problem(monkeypatch):
    monkeypatch.setenv("URINGINFER_NATIVE", "0")
    finding = machine_checks.check_kernels()
    assert finding.status is Status.PROBLEM
    assert "URINGINFER_NATIVE=0" in finding.message


def cpuinfo(count, flags):
    return "".join(f"processor\t: {n}\nflags\t\t: fpu {flags} avx2ish\n\n" for n in range(count))


def test_vector_instructions_are_listed(roots, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    roots.write("proc/cpuinfo", cpuinfo(2, "avx2 fma avx512f"))
    finding = machine_checks.check_processor(roots.proc, roots.sys)
    assert finding.status is Status.OK
    assert finding.message == "2 of 2 processors; avx2 fma avx512f"


def test_a_processor_without_avx2_is_a_note(roots, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    roots.write("proc/cpuinfo", cpuinfo(1, "sse2"))
    assert "portable code" in machine_checks.check_processor(roots.proc, roots.sys).message


def test_processors_taken_away_by_a_cgroup_are_a_note(roots, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    roots.write("proc/cpuinfo", cpuinfo(4, "avx2"))
    roots.write("proc/self/cgroup", "0::/app\n")
    roots.write("sys/fs/cgroup/app/cpu.max", "200000 100000\n")
    finding = machine_checks.check_processor(roots.proc, roots.sys)
    assert finding.status is Status.NOTE
    assert finding.message.startswith("2 of 4 processors")


def test_huge_pages_that_are_switched_off_are_a_note(roots):
    roots.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
    roots.write("proc/self/smaps", "")
    finding = machine_checks.check_huge_pages(roots.proc, roots.sys)
    assert finding.status is Status.NOTE
    assert "switched off" in finding.message and "echo madvise" in finding.message


def test_huge_pages_count_as_obtained_only_if_smaps_says_so(roots):
    roots.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    roots.write("proc/self/status", "THP_enabled:\t1\n")
    roots.write("proc/self/smaps", "")
    finding = machine_checks.check_huge_pages(roots.proc, roots.sys)
    assert finding.status is Status.NOTE
    assert finding.message.startswith("0 B of 16.00 MiB")


def test_memory_names_the_bound_that_counts():
    bounds = (*MACHINE.bounds, Bound("cgroup v2 /app (memory.max)", 4 * GIB, 3 * GIB))
    finding = machine_checks.check_memory(replace(MACHINE, bounds=bounds))
    assert finding.status is Status.OK
    assert finding.message == "3.00 GiB of 16.00 GiB usable, bounded by cgroup v2 /app (memory.max)"


def test_memory_that_others_hold_is_a_note():
    finding = machine_checks.check_memory(replace(MACHINE, memory_available=6 * GIB))
    assert finding.status is Status.NOTE
    assert "other processes hold 10.00 GiB" in finding.message


def test_every_cgroup_limit_is_shown():
    bounds = (
        *MACHINE.bounds,
        Bound("cgroup v1 /a (memory.limit_in_bytes)", 8 * GIB, GIB),
        Bound("cgroup v2 /b (memory.high)", 4 * GIB, GIB),
    )
    message = machine_checks.check_cgroup(replace(MACHINE, bounds=bounds)).message
    assert "/a (memory.limit_in_bytes) = 8.00 GiB, cgroup v2 /b (memory.high) = 4.00 GiB" in message
    assert machine_checks.check_cgroup(MACHINE).message == "no memory limit"


def test_a_small_memlock_limit_is_a_note_with_both_values(roots):
    machine = replace(MACHINE, memlock_soft=8 << 20, memlock_hard=64 << 20)
    roots.write("proc/self/status", "CapEff:\t0000000000000000\n")
    finding = machine_checks.check_memlock(machine, roots.proc)
    assert finding.status is Status.NOTE
    assert finding.message.startswith("8.00 MiB (hard limit 64.00 MiB)")
    assert "LimitMEMLOCK" in finding.remedy


def test_memlock_does_not_matter_to_who_may_lock(roots):
    machine = replace(MACHINE, memlock_soft=8 << 20)
    roots.write("proc/self/status", f"CapEff:\t{1 << 14:016x}\n")
    assert machine_checks.check_memlock(machine, roots.proc).status is Status.OK
    assert machine_checks.check_memlock(MACHINE, roots.proc).status is Status.OK


def test_swap_in_use_is_a_note_and_idle_swap_is_not():
    idle = replace(MACHINE, swap_total=2 * GIB, swap_free=2 * GIB)
    assert machine_checks.check_swap(MACHINE).message == "none"
    assert machine_checks.check_swap(idle).status is Status.OK
    finding = machine_checks.check_swap(replace(idle, swap_free=GIB))
    assert finding.status is Status.NOTE
    assert finding.message.startswith("1.00 GiB of 2.00 GiB in use")


def test_a_machine_without_proc_still_gets_its_other_findings(roots):
    findings = {finding.check: finding for finding in machine_checks.check_machine(roots.proc, roots.sys)}
    assert findings["memory"].status is Status.PROBLEM
    assert "MemTotal" in findings["memory"].message
    assert {"kernel", "io_uring", "kernels", "processor", "huge pages"} <= set(findings)
