from __future__ import annotations

import mmap
import subprocess
import sys as system
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.errors import UsageError
from uringinfer.storage import arena as arena_module
from uringinfer.storage.arena import HUGE_PAGE, Arena, huge_bytes_in, huge_page_notes

SMAPS = """\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0
Size:               2048 kB
AnonHugePages:      2048 kB
Private_Hugetlb:       0 kB
VmFlags: rd wr mr mw me ac sd hg
7f0000200000-7f0000a00000 rw-p 00000000 00:00 0                          [anon: x]
Size:               8192 kB
Rss:                8192 kB
AnonHugePages:      6144 kB
ShmemPmdMapped:        0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
7f0000a00000-7f0000e00000 rw-p 00000000 00:0f 12 /anon_hugepage (deleted)
AnonHugePages:         0 kB
Private_Hugetlb:    4096 kB
7f0000e00000-7f0001200000 rw-p 00000000 00:00 0
AnonHugePages:      4096 kB
"""


@settings(max_examples=30)
@given(st.integers(1, 5 * HUGE_PAGE))
def test_address_and_size_are_whole_huge_pages(nbytes: int) -> None:
    with Arena(nbytes, populate=False) as arena:
        assert arena.address % HUGE_PAGE == 0
        assert arena.nbytes % HUGE_PAGE == 0
        assert nbytes <= arena.nbytes < nbytes + HUGE_PAGE


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 300_000), st.sampled_from([1, 64, 4096, 65536])), max_size=5))
def test_regions_are_aligned_inside_the_arena_and_apart(carves: list[tuple[int, int]]) -> None:
    with Arena(2 * HUGE_PAGE, populate=False) as arena:
        end = arena.address
        for nbytes, alignment in carves:
            region = arena.carve(nbytes, alignment=alignment)
            assert region.shape == (nbytes,)
            assert region.ctypes.data % alignment == 0
            assert region.ctypes.data >= end
            end = region.ctypes.data + nbytes
        assert end <= arena.address + arena.nbytes
        assert arena.used == end - arena.address


def test_a_region_is_a_view_that_can_be_written() -> None:
    with Arena(HUGE_PAGE) as arena:
        region = arena.carve(100)
        region[:] = 7
        assert not region.flags.owndata
        assert region.flags.writeable


def test_a_carve_beyond_the_end_names_the_region_and_both_numbers() -> None:
    with Arena(HUGE_PAGE, populate=False) as arena:
        arena.carve(4096)
        with pytest.raises(
            UsageError, match=rf"has {HUGE_PAGE - 4096} of {HUGE_PAGE} bytes left, ring needs"
        ):
            arena.carve(HUGE_PAGE, name="ring")


@pytest.mark.parametrize("alignment", [0, 3, 2 * HUGE_PAGE])
def test_an_alignment_that_cannot_be_kept_is_refused(alignment: int) -> None:
    with Arena(HUGE_PAGE, populate=False) as arena, pytest.raises(UsageError, match=f"alignment {alignment}"):
        arena.carve(1, alignment=alignment)


def test_a_view_outlives_close() -> None:
    arena = Arena(HUGE_PAGE)
    region = arena.carve(4096)
    region[:] = 9
    arena.close()
    arena.close()
    assert (region == 9).all()


def test_a_closed_arena_gives_no_regions() -> None:
    arena = Arena(HUGE_PAGE, populate=False)
    arena.close()
    with pytest.raises(UsageError, match="closed arena"):
        arena.carve(1)


def test_close_returns_the_memory_once_no_view_is_left() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    before = resident()
    arena = Arena(64 << 20)
    assert resident() > before + (48 << 20)
    arena.close()
    assert resident() < before + (16 << 20)


def test_populating_takes_all_memory_where_the_kernel_cannot_do_it_by_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arena_module, "_MADV_POPULATE_WRITE", 9999)  # EINVAL, as before Linux 5.14
    monkeypatch.setattr(arena_module, "_POPULATE_STEP", HUGE_PAGE)
    before = int(Path("/proc/self/statm").read_text().split()[1])
    with Arena(32 << 20):
        after = int(Path("/proc/self/statm").read_text().split()[1])
    assert (after - before) * mmap.PAGESIZE > 24 << 20


def test_huge_pages_are_really_obtained_where_the_kernel_gives_them() -> None:
    with Arena(32 << 20) as arena:
        if arena.notes:
            pytest.skip(arena.notes[0])
        assert arena.huge_bytes() == arena.nbytes


def test_huge_bytes_are_read_from_smaps_at_the_arenas_address(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/status").write_text("THP_enabled:\t1\n")
    smaps = tmp_path / "self/smaps"
    with Arena(4 << 20, populate=False, proc=tmp_path) as arena:
        area = f"{arena.address:x}-{arena.address + arena.nbytes:x} rw-p 00000000 00:00 0"
        smaps.write_text(f"{SMAPS}{area}\nAnonHugePages:      2048 kB\n")
        assert arena.huge_bytes() == 2 << 20


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0x7F0000200000, 0x7F0000A00000, 6 << 20),
        (0x7F0000A00000, 0x7F0000E00000, 4 << 20),
        (0x7F0000000000, 0x7F0001200000, 16 << 20),
        (0x7F0001200000, 0x7F0001400000, 0),
    ],
    ids=["transparent", "from the pool", "several areas", "none"],
)
def test_huge_bytes_of_a_range_are_summed_from_smaps(start: int, end: int, expected: int) -> None:
    assert huge_bytes_in(SMAPS, start, end) == expected


def fake_kernel(root: Path, *, enabled: str, process: str) -> tuple[Path, Path]:
    (root / "self").mkdir()
    (root / "self/status").write_text(f"Name:\tpython\nTHP_enabled:\t{process}\n")
    (root / "self/smaps").write_text("")
    switch = root / "kernel/mm/transparent_hugepage/enabled"
    switch.parent.mkdir(parents=True)
    switch.write_text(enabled + "\n")
    return root, root


def test_huge_pages_that_are_switched_off_are_a_note_with_the_remedy(tmp_path: Path) -> None:
    proc, sys = fake_kernel(tmp_path, enabled="always madvise [never]", process="1")
    with Arena(HUGE_PAGE, proc=proc, sys=sys) as arena:
        assert len(arena.notes) == 1
        assert "switched off" in arena.notes[0]
        assert "echo madvise >" in arena.notes[0]


def test_huge_pages_that_are_switched_off_for_the_process_are_a_note(tmp_path: Path) -> None:
    proc, sys = fake_kernel(tmp_path, enabled="always [madvise] never", process="0")
    assert "for this process" in huge_page_notes(proc, sys)[0]


def test_nothing_is_noted_where_huge_pages_are_allowed(tmp_path: Path) -> None:
    proc, sys = fake_kernel(tmp_path, enabled="always [madvise] never", process="1")
    assert huge_page_notes(proc, sys) == []


def test_a_kernel_without_transparent_huge_pages_is_a_note(tmp_path: Path) -> None:
    assert "not known to this kernel" in huge_page_notes(tmp_path, tmp_path)[0]


def test_pages_that_are_not_huge_are_counted_in_a_note(tmp_path: Path) -> None:
    proc, sys = fake_kernel(tmp_path, enabled="[always] madvise never", process="1")
    with Arena(HUGE_PAGE, proc=proc, sys=sys) as arena:  # the fake smaps knows no huge page
        assert "0 B of 2.00 MiB lie in huge pages" in arena.notes[0]


def test_a_pool_without_pages_is_a_note_and_the_arena_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "_MAP_HUGE_2MB", 31 << 26)  # no pool has pages of 2^31 bytes
    with Arena(2 * HUGE_PAGE, hugetlb=True) as arena:
        assert "no 2 free pages in the 2 MiB pool" in arena.notes[0]
        assert "vm.nr_hugepages=2" in arena.notes[0]
        arena.carve(HUGE_PAGE)[:] = 1


def test_an_arena_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="an arena of 0 bytes"):
        Arena(0)


def test_missing_address_space_is_an_error_with_the_size() -> None:
    script = """
import resource
from uringinfer.errors import EnvironmentError_
from uringinfer.storage.arena import Arena
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
try:
    Arena(64 << 30)
except EnvironmentError_ as error:
    print(error)
"""
    output = subprocess.run([system.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "no address space for an arena of 64.00 GiB" in output.stdout


def test_an_unadvised_page_below_keeps_a_neighbours_huge_pages_out_of_the_count() -> None:
    with Arena(HUGE_PAGE, populate=False) as arena:
        areas = Path("/proc/self/smaps").read_text()
    _, found, below = areas.partition(f"-{arena.address:x} rw-p")
    assert found, "no area ends where the arena begins"
    flags = below.partition("VmFlags:")[2].partition("\n")[0].split()
    assert "hg" not in flags


def test_two_arenas_side_by_side_count_their_own_huge_pages() -> None:
    with Arena(8 << 20) as first, Arena(8 << 20) as second:
        if first.notes:
            pytest.skip(first.notes[0])
        assert np.array_equal([first.huge_bytes(), second.huge_bytes()], [8 << 20, 8 << 20])
