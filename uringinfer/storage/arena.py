"""One allocation of huge pages, carved into regions.

Everything that streams is read into the arena: 2 MiB pages make a direct read cheap for the kernel (one
segment of a transfer instead of 512), and one mapping can be registered with a ring once. The arena knows
nothing of what its regions hold.

Invariants: the first byte and the size are multiples of 2 MiB; regions never overlap and are never taken
back; the mapping lives until `close` was called and the last view of a region is gone, so a view cannot point
into memory that was returned.
"""

from __future__ import annotations

import errno
import mmap
import re
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.storage.redzones import REDZONE_BYTES, SPARE_BYTES, poison
from uringinfer.units import format_size

HUGE_PAGE = 2 << 20

_POPULATE_STEP = 64 << 20  # bounds how long Ctrl-C waits: some milliseconds
_MADV_POPULATE_WRITE = 23  # Linux 5.14; the mmap module has no name for it
_MAP_HUGETLB = 0x40000
_MAP_HUGE_2MB = 21 << 26

_RANGE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")
_HUGE = re.compile(r"(?:AnonHugePages|Private_Hugetlb|Shared_Hugetlb): +(\d+) kB")


class Arena:
    """`nbytes` of anonymous memory, rounded up to whole huge pages.

    `hugetlb` takes the pages from the reserved pool if it has enough. `populate` takes all memory now, so
    that no read meets a missing page. What was asked for and not obtained stands in `notes`. `proc` and `sys`
    are where the kernel's files are looked for.

    Raises EnvironmentError_ if there is not enough address space or memory.
    """

    def __init__(
        self,
        nbytes: int,
        *,
        hugetlb: bool = False,
        populate: bool = True,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
    ) -> None:
        if nbytes <= 0:
            raise UsageError(f"an arena of {nbytes} bytes was asked for", hint="it needs at least one byte")
        self.nbytes = -(-(nbytes + SPARE_BYTES) // HUGE_PAGE) * HUGE_PAGE
        self.notes: list[str] = []
        self._used = 0
        self._smaps = proc / "self" / "smaps"
        mapping = self._map_pool() if hugetlb else None
        start = 0
        obstacles: list[str] = []
        if mapping is None:
            mapping, start = self._map_advised()
            obstacles = huge_page_notes(proc, sys)
            self.notes += obstacles
        self._memory: NDArray[np.uint8] | None = np.frombuffer(mapping, np.uint8, self.nbytes, start)
        self.address: int = self._memory.ctypes.data
        if populate:
            self._populate(mapping, start)
            if not obstacles:
                self._note_small_pages()

    def carve(self, nbytes: int, *, alignment: int = 4096, name: str = "") -> NDArray[np.uint8]:
        """The next free region, uint8 [nbytes], its address a multiple of `alignment` (a power of two).

        A view, no copy. `name` is for messages. Raises UsageError if the arena has less left.
        """
        if alignment <= 0 or alignment & (alignment - 1) or alignment > HUGE_PAGE:
            raise UsageError(
                f"alignment {alignment} for {name or 'a region'}",
                hint=f"use a power of two up to {HUGE_PAGE}",
            )
        if self._memory is None:
            raise UsageError(f"{name or 'a region'} was asked of a closed arena", hint="carve before close")
        start = -(-self._used // alignment) * alignment
        if nbytes < 0 or start + nbytes > self.nbytes:
            raise UsageError(
                f"the arena has {max(self.nbytes - start, 0)} of {self.nbytes} bytes left, "
                f"{name or 'a region'} needs {nbytes}",
                hint="make the arena larger",
            )
        self._used = start + nbytes
        if REDZONE_BYTES:
            # the rest of the region's last page as well: nothing else may begin there
            self._used = -(-self._used // 4096) * 4096 + REDZONE_BYTES
            poison(self.address + start + nbytes, self._used - start - nbytes)
        return self._memory[start : start + nbytes]

    @property
    def used(self) -> int:
        """Bytes carved so far, with the gaps that alignment left."""
        return self._used

    def huge_bytes(self) -> int:
        """How many of the arena's bytes lie in huge pages now, as the kernel counts them in smaps."""
        with self._smaps.open("r") as smaps:
            return huge_bytes_in(smaps.read(), self.address, self.address + self.nbytes)

    def close(self) -> None:
        """Gives the memory back, at once or when the last view of a region goes; twice is harmless."""
        self._memory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _map_pool(self) -> mmap.mmap | None:
        """A mapping of reserved huge pages; None, with a note, if the pool does not have them."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_HUGETLB | _MAP_HUGE_2MB
        try:
            return mmap.mmap(-1, self.nbytes, flags=flags)
        except OSError as error:
            pages = self.nbytes // HUGE_PAGE
            self.notes.append(
                f"no {pages} free pages in the 2 MiB pool ({error.strerror}), transparent ones are used; "
                f"to reserve them: sysctl vm.nr_hugepages={pages}"
            )
            return None

    def _map_advised(self) -> tuple[mmap.mmap, int]:
        """A mapping, and where in it `nbytes` bytes start that are aligned to and advised as huge pages."""
        # an unadvised page on each side keeps the kernel from merging this area with a neighbour, which
        # would count the neighbour's huge pages as ours in smaps
        margin = mmap.PAGESIZE
        try:
            mapping = mmap.mmap(
                -1, self.nbytes + HUGE_PAGE + 2 * margin, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            )
        except (OSError, OverflowError) as error:
            raise EnvironmentError_(
                f"no address space for an arena of {format_size(self.nbytes)}: {error}",
                hint="ask for less memory, or raise the limit (ulimit -v)",
            ) from None
        address = np.frombuffer(mapping, np.uint8, 1).ctypes.data
        start = -(-(address + margin) // HUGE_PAGE) * HUGE_PAGE - address
        try:
            # before the first touch: a page is huge from the start, or only after khugepaged came by
            mapping.madvise(mmap.MADV_HUGEPAGE, start, self.nbytes)
        except OSError as error:
            self.notes.append(
                f"the kernel has no transparent huge pages ({error.strerror}), reads cost more CPU"
            )
        return mapping, start

    def _populate(self, mapping: mmap.mmap, start: int) -> None:
        """Takes all memory now, in steps, so that a signal is heard in between."""
        offset = 0
        while offset < self.nbytes:
            step = min(_POPULATE_STEP, self.nbytes - offset)
            try:
                mapping.madvise(_MADV_POPULATE_WRITE, start + offset, step)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise EnvironmentError_(
                        f"memory ran out after {format_size(offset)} of an arena of "
                        f"{format_size(self.nbytes)}: {error.strerror}",
                        hint="ask for less memory, or free some",
                    ) from None
                # Linux before 5.14: touch one byte of each page
                np.frombuffer(mapping, np.uint8, step, start + offset)[:: mmap.PAGESIZE] = 0
            offset += step

    def _note_small_pages(self) -> None:
        huge = self.huge_bytes()
        if huge < self.nbytes:
            self.notes.append(
                f"{format_size(huge)} of {format_size(self.nbytes)} lie in huge pages, because memory is "
                "fragmented; reads cost more CPU; to compact it: echo 1 > /proc/sys/vm/compact_memory"
            )


def huge_bytes_in(smaps: str, start: int, end: int) -> int:
    """Bytes in huge pages, transparent or from the pool, of the areas of `smaps` within [start, end)."""
    total = 0
    inside = False
    for line in smaps.splitlines():
        if header := _RANGE.match(line):
            inside = start <= int(header[1], 16) and int(header[2], 16) <= end
        elif inside and (count := _HUGE.match(line)):
            total += int(count[1]) << 10
    return total


def huge_page_notes(proc: Path, sys: Path) -> list[str]:
    """What keeps this process from transparent huge pages, with the remedy; empty if nothing does."""
    switch = sys / "kernel/mm/transparent_hugepage/enabled"
    cost = "reads go into 4 KiB pages and cost more CPU"
    try:
        if "[never]" in switch.read_text():
            return [
                f"transparent huge pages are switched off, {cost}; to allow them: echo madvise > {switch}"
            ]
        if re.search(r"^THP_enabled:\s+0", (proc / "self/status").read_text(), re.MULTILINE):
            return [
                f"transparent huge pages are switched off for this process (prctl PR_SET_THP_DISABLE), {cost}"
            ]
    except OSError as error:
        return [f"transparent huge pages are not known to this kernel ({error}), {cost}"]
    return []
