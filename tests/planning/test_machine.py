"""Every test brings its own /proc and /sys; values are written as the kernel writes them."""

import os
import resource
from pathlib import Path

import pytest

from uringinfer.errors import EnvironmentError_
from uringinfer.planning.machine import Machine, resident_bytes

GIB = 1 << 30
NO_LIMIT_V1 = 9223372036854771712
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
HYBRID_MOUNTS = "\n".join(
    [
        "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct",
        V1_MOUNT,
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw",
    ]
)


class Tree:
    """A fake /proc and /sys with 16 GiB of RAM, 12 of it available, and a process of 1 GiB."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.sys = root / "sys"
        self.write_proc("meminfo", MemTotal=16 * GIB, MemAvailable=12 * GIB, SwapTotal=2 * GIB, SwapFree=GIB)
        self.write_proc("self/status", VmSize=3 * GIB, VmData=GIB * 3 // 2, VmRSS=GIB)
        self.sys.mkdir()

    def write_proc(self, name: str, **fields: int) -> None:
        lines = (f"{field}:   {nbytes // 1024} kB\n" for field, nbytes in fields.items())
        self.write(self.proc / name, "".join(lines))

    def write(self, path: Path, text: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}")

    def cgroup(self, own: str, mounts: str) -> None:
        self.write(self.proc / "self/cgroup", own + "\n")
        self.write(self.proc / "self/mountinfo", mounts + "\n")

    def file(self, name: str, text: object) -> None:
        self.write(self.sys / "fs/cgroup" / name, f"{text}\n")

    def limits(self, name: str, soft: object) -> None:
        header = "Limit                     Soft Limit           Hard Limit           Units     \n"
        self.write(self.proc / "self/limits", f"{header}{name:<26}{soft:<21}{'unlimited':<21}bytes     \n")

    def read(self) -> Machine:
        return Machine.read(self.proc, self.sys)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_without_cgroups_the_available_memory_and_our_own_is_usable(tree):
    machine = tree.read()

    assert machine.usable_bytes == 13 * GIB
    assert machine.bounded_by == "memory available on this machine"
    assert (machine.swap_total, machine.swap_free) == (2 * GIB, GIB)


def test_a_kernel_without_memavailable_falls_back_to_the_total(tree):
    tree.write_proc("meminfo", MemTotal=16 * GIB)

    assert tree.read().usable_bytes == 16 * GIB


def test_a_v2_limit_bounds(tree):
    tree.cgroup("0::/user.slice/app", V2_MOUNT)
    tree.file("user.slice/app/memory.max", 8 * GIB)

    machine = tree.read()

    assert machine.usable_bytes == 8 * GIB
    assert machine.bounded_by == "cgroup v2 /user.slice/app (memory.max)"


def test_a_v2_ancestor_bounds_when_the_own_cgroup_says_max(tree):
    tree.cgroup("0::/a/b/c", V2_MOUNT)
    tree.file("a/b/c/memory.max", "max")
    tree.file("a/b/memory.max", 9 * GIB)
    tree.file("a/memory.max", 7 * GIB)

    machine = tree.read()

    assert machine.usable_bytes == 7 * GIB
    assert machine.bounded_by == "cgroup v2 /a (memory.max)"


def test_memory_high_bounds_as_well_as_memory_max(tree):
    tree.cgroup("0::/a", V2_MOUNT)
    tree.file("a/memory.max", 8 * GIB)
    tree.file("a/memory.high", 6 * GIB)

    assert tree.read().bounded_by == "cgroup v2 /a (memory.high)"


def test_a_v1_limit_bounds_and_its_huge_number_is_no_limit(tree):
    tree.cgroup("4:memory:/jobs/one\n0::/", V1_MOUNT)
    tree.file("memory/jobs/one/memory.limit_in_bytes", 5 * GIB)
    tree.file("memory/jobs/memory.limit_in_bytes", NO_LIMIT_V1)
    tree.file("memory/memory.limit_in_bytes", NO_LIMIT_V1)

    machine = tree.read()

    assert machine.usable_bytes == 5 * GIB
    assert [bound.name for bound in machine.bounds[1:]] == ["cgroup v1 /jobs/one (memory.limit_in_bytes)"]


def test_a_v1_ancestor_bounds(tree):
    tree.cgroup("4:memory:/jobs/one", V1_MOUNT)
    tree.file("memory/jobs/one/memory.limit_in_bytes", 5 * GIB)
    tree.file("memory/jobs/memory.limit_in_bytes", 4 * GIB)

    assert tree.read().bounded_by == "cgroup v1 /jobs (memory.limit_in_bytes)"


def test_a_v1_limit_above_the_mount_is_seen_through_the_hierarchical_limit(tree):
    tree.cgroup("4:memory:/docker/abc", V1_MOUNT.replace("0:32 /", "0:32 /docker/abc"))
    tree.file("memory/memory.limit_in_bytes", 9 * GIB)
    tree.file("memory/memory.stat", f"cache 0\nhierarchical_memory_limit {3 * GIB}")

    machine = tree.read()

    assert machine.usable_bytes == 3 * GIB
    assert machine.bounded_by == "cgroup v1 / (hierarchical_memory_limit)"


def test_hybrid_mounts_take_memory_limits_from_both_hierarchies(tree):
    tree.cgroup("8:pids:/\n4:memory:/jobs\n3:cpu,cpuacct:/other\n0::/slice", HYBRID_MOUNTS)
    tree.file("memory/jobs/memory.limit_in_bytes", 6 * GIB)
    tree.file("unified/slice/memory.max", 5 * GIB)
    tree.file("cpu/other/memory.limit_in_bytes", GIB)

    machine = tree.read()

    assert {bound.name for bound in machine.bounds[1:]} == {
        "cgroup v1 /jobs (memory.limit_in_bytes)",
        "cgroup v2 /slice (memory.max)",
    }
    assert machine.usable_bytes == 5 * GIB


def test_memory_mounted_together_with_another_v1_controller_is_found(tree):
    mount = V1_MOUNT.replace("rw,memory", "rw,cpu,memory").replace("/memory ", "/cpu,memory ")
    tree.cgroup("4:cpu,memory:/jobs", mount)
    tree.file("cpu,memory/jobs/memory.limit_in_bytes", 5 * GIB)

    assert tree.read().usable_bytes == 5 * GIB


@pytest.mark.parametrize("own", ["0::/", "0::/../../system.slice/docker-1.scope", "0::/not/mounted/here"])
def test_in_a_container_the_root_of_the_namespace_is_our_cgroup(tree, own):
    tree.cgroup(own, V2_MOUNT)
    tree.file("memory.max", 4 * GIB)

    machine = tree.read()

    assert machine.usable_bytes == 4 * GIB
    assert machine.bounded_by == "cgroup v2 / (memory.max)"


def test_the_page_cache_of_a_cgroup_is_not_used_memory(tree):
    tree.cgroup("0::/a", V2_MOUNT)
    tree.file("a/memory.max", 8 * GIB)
    tree.file("a/memory.current", 7 * GIB)
    tree.file("a/memory.stat", f"anon {GIB}\nactive_file {2 * GIB}\ninactive_file {4 * GIB}")

    assert tree.read().usable_bytes == 8 * GIB


def test_what_others_in_the_cgroup_hold_is_not_usable(tree):
    tree.cgroup("4:memory:/a", V1_MOUNT)
    tree.file("memory/a/memory.limit_in_bytes", 8 * GIB)
    tree.file("memory/a/memory.usage_in_bytes", 6 * GIB)
    tree.file("memory/a/memory.stat", f"total_inactive_file {2 * GIB}\ntotal_active_file 0")

    # 4 GiB are no cache, one of them is ours
    assert tree.read().usable_bytes == 5 * GIB


def test_a_limit_on_addresses_counts_what_is_mapped_and_not_resident_as_lost(tree):
    tree.limits("Max address space", 10 * GIB)

    machine = tree.read()

    assert machine.bounded_by == "RLIMIT_AS"
    assert machine.usable_bytes == 8 * GIB


def test_a_limit_on_data_bounds(tree):
    tree.limits("Max data size", 4 * GIB)

    assert tree.read().usable_bytes == GIB * 7 // 2


def test_memlock_is_reported_and_bounds_nothing(tree):
    tree.limits("Max locked memory", 8 << 20)

    machine = tree.read()

    assert (machine.memlock_soft, machine.memlock_hard) == (8 << 20, None)
    assert machine.usable_bytes == 13 * GIB


def test_mount_points_with_spaces_are_found(tree):
    tree.cgroup("0::/", r"30 23 0:26 / /sys/fs/c\040group rw - cgroup2 cgroup2 rw")
    tree.write(tree.sys / "fs/c group/memory.max", GIB)

    assert tree.read().usable_bytes == GIB


def test_damaged_lines_are_passed_over(tree):
    tree.cgroup("nonsense\n:::\n0::/", f"too short\n1 2 - x\n{V2_MOUNT}")
    tree.file("memory.max", "twelve")

    assert tree.read().usable_bytes == 13 * GIB


def test_a_proc_that_does_not_tell_the_memory_is_an_error(tmp_path):
    with pytest.raises(EnvironmentError_, match="MemTotal"):
        Machine.read(tmp_path, tmp_path)


def test_the_real_machine_agrees_with_the_system_calls():
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)

    machine = Machine.read()

    assert abs(machine.memory_total - total) < 4096
    assert machine.memlock_soft == (None if soft == resource.RLIM_INFINITY else soft)
    assert 0 < machine.usable_bytes <= machine.memory_total


def test_resident_bytes_is_vmrss(tree):
    assert resident_bytes(tree.proc) == GIB
    assert 1 << 20 < resident_bytes() < 1 << 40
