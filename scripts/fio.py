"""Runs fio on one file and gives its numbers; for the scripts that compare with it."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HUGE_PAGE = 2 << 20


@dataclass(frozen=True)
class FioResult:
    """Decimal gigabytes per second, and CPU milliseconds per gigabyte in user and kernel mode."""

    gb_per_s: float
    user_ms_per_gb: float
    system_ms_per_gb: float


def require_fio() -> str:
    """fio's version; ends the program with the remedy if it is not installed."""
    if shutil.which("fio") is None:
        sys.exit("fio is not installed; on Debian and Ubuntu: apt-get install fio")
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def shared_huge_pages(nbytes: int) -> Iterator[tuple[Path, NDArray[np.uint8]]]:
    """`nbytes` of memory in 2 MiB pages, uint8, and a path under which fio reads into the very same pages.

    Where memory lies decides how fast a drive fills it, on virtual machines by several per cent: two programs
    with memory of their own compare that too."""
    with huge_page_pool(nbytes + HUGE_PAGE):
        fd = os.memfd_create("shared with fio", os.MFD_HUGETLB | os.MFD_HUGE_2MB)
        try:
            # fio maps some KiB more than its blocks, to align them
            os.ftruncate(fd, -(-nbytes // HUGE_PAGE) * HUGE_PAGE + HUGE_PAGE)
            memory = np.frombuffer(mmap.mmap(fd, nbytes), np.uint8)
            memory[:: mmap.PAGESIZE] = 0  # so that no read meets a missing page
            yield Path(f"/proc/{os.getpid()}/fd/{fd}"), memory
        finally:
            os.close(fd)


@contextlib.contextmanager
def huge_page_pool(nbytes: int) -> Iterator[None]:
    """A pool of free 2 MiB pages for `nbytes` bytes, reserved for the while if it is not there.

    Ends the program with the remedy if that is not allowed."""
    counter = Path("/proc/sys/vm/nr_hugepages")
    free = int(Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").read_text())
    before = counter.read_text()
    missing = -(-nbytes // HUGE_PAGE) - free
    try:
        if missing > 0:
            counter.write_text(str(int(before) + missing))
        yield
    except PermissionError:
        sys.exit(f"fio needs huge pages; as root: sysctl vm.nr_hugepages={int(before) + missing}")
    finally:
        if missing > 0:
            with contextlib.suppress(PermissionError):
                counter.write_text(before)


def run_fio(
    path: str | Path,
    *,
    nbytes: int,
    block_bytes: int,
    queue_depth: int,
    random: bool = False,
    direct: bool = True,
    engine: str = "io_uring",
    registered: bool = True,
    huge: bool = False,
    memory: Path | None = None,
    batch: int | None = None,
    lean: bool = False,
    offset: int = 0,
    seconds: float | None = None,
    write: bool = False,
) -> FioResult:
    """Reads `nbytes` bytes of `path` (absolute, or /proc/PID/fd/FD) once, or writes them to it.

    With `offset`, from there to the end. With `seconds`, again and again for so long. fio has no option for
    transparent huge pages; `huge` makes the C library's malloc ask for them, `memory` is a path that
    `shared_huge_pages` gave. With `batch`, fio hands over up to so many reads at once and takes all that are
    done, instead of one by one. `lean` leaves out what fio does beside reading, a map of the offsets that
    were read and its latencies, and makes random offsets new in each run, where fio would repeat them."""
    kind = "write" if write else "read"
    arguments = {
        "name": kind,
        "filename": path,
        "rw": ("rand" if random else "") + kind,
        "bs": block_bytes,
        "iodepth": queue_depth,
        "ioengine": engine,
        "direct": int(direct),
        "offset": offset,
        "size": nbytes - offset,
        "io_size": nbytes - offset,
        "allow_file_create": int(write),
        "output-format": "json",
    }
    if seconds is not None:
        del arguments["io_size"]
        arguments |= {"runtime": f"{round(seconds * 1000)}ms", "time_based": 1}
    if lean:
        # not gtod_reduce, with which fio would look only at every 64th read whether its time is over
        clocks = ("disable_lat", "disable_clat", "disable_slat", "disable_bw_measurement")
        arguments |= {"randrepeat": 0, "norandommap": 1} | dict.fromkeys(clocks, 1)
    if batch is not None:
        arguments |= {
            "iodepth_batch_submit": min(batch, queue_depth),
            "iodepth_batch_complete_max": queue_depth,
        }
    if memory is not None:
        arguments["iomem"] = f"mmapshared:{memory}"
    if engine == "io_uring":
        arguments |= {"fixedbufs": int(registered), "registerfiles": int(registered)}
    command = [
        "fio",
        *([] if write else ["--readonly"]),
        *(f"--{name}={value}" for name, value in arguments.items()),
    ]
    environment = os.environ | {"GLIBC_TUNABLES": f"glibc.malloc.hugetlb={int(huge)}"}
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    job = json.loads(output[output.index("{") :])["jobs"][0]
    moved = job[kind]
    gigabytes = moved["io_bytes"] / 1e9
    # fio gives CPU as per cent of the job's run time, in milliseconds
    return FioResult(
        gb_per_s=moved["bw_bytes"] / 1e9,
        user_ms_per_gb=job["usr_cpu"] / 100 * job["job_runtime"] / gigabytes,
        system_ms_per_gb=job["sys_cpu"] / 100 * job["job_runtime"] / gigabytes,
    )
