"""Measures `pack` and `verify` against the drive, in one run: a drive's rate changes from minute to minute.

Each round: fio reads the checkpoint, fio writes a file, fio does both at once; then the model is packed; then
fio does the same again; then the reader reads the container and `verify` checks it. All past the page cache.
Ratios are taken within a round, fio's rates as the mean of before and after; medians over the rounds are
printed.

A drive that reads and writes through one link cannot copy at min(read, write). Two bounds of a copy on one
drive stand beside it: fio at once, the slower of both directions, and by turns, which is what reading a part
and then writing it comes to, however large the part: read * write / (read + write).

    python scripts/bench_pack.py --directory /mnt/nvme --size 4GB
    python scripts/bench_pack.py --gguf --json

With --gguf the model is a mixture of experts as a GGUF file in four parts, quantised as Q4_K_M is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from bench_reader import Cell, read_once
from fio import require_fio, run_fio
from make_gguf import write_mixture
from make_synthetic import layers_for_size, llama_config, llama_tensors, write_checkpoint

from uringinfer.storage.direct import open_file
from uringinfer.storage.filesystem import filesystem_name
from uringinfer.units import format_size, parse_size

BLOCK_BYTES = 4 << 20
QUEUE_DEPTH = 8


def fio_rates(checkpoint: Path, scratch: Path) -> dict[str, float]:
    """GB/s of reading, of writing, and of each when both go on at once."""
    source = max(_weights(checkpoint), key=lambda path: path.stat().st_size)
    job = {"nbytes": source.stat().st_size // BLOCK_BYTES * BLOCK_BYTES, "block_bytes": BLOCK_BYTES}
    job |= {"queue_depth": QUEUE_DEPTH, "huge": True}

    def read() -> float:
        return run_fio(source, **job).gb_per_s

    def write() -> float:
        scratch.unlink(missing_ok=True)
        return run_fio(scratch, write=True, **job).gb_per_s

    rates = {"read": read(), "write": write()}
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(read), pool.submit(write)]
        rates["read_while_writing"], rates["write_while_reading"] = (future.result() for future in both)
    scratch.unlink()
    return rates


def _weights(checkpoint: Path) -> list[Path]:
    return [file for file in checkpoint.iterdir() if file.suffix in (".safetensors", ".gguf")]


def run_command(*arguments: object) -> dict[str, Any]:
    """Runs a command of uringinfer that prints JSON; adds its peak RSS in bytes and its CPU seconds."""
    command = [sys.executable, "-m", "uringinfer", *map(str, arguments), "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output)
        peak = 0
        # not ru_maxrss, which a child inherits from the process that started it
        while process.poll() is None:
            peak = max(peak, high_water_mark(process.pid))
            time.sleep(0.02)
        if process.returncode:
            sys.exit(f"{' '.join(command)} failed")
        output.seek(0)
        result = json.loads(output.read())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result | {"peak_rss": peak, "cpu_seconds": seconds}


def high_water_mark(pid: int) -> int:
    """Peak RSS of a running process so far, in bytes; 0 if it just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) * 1024 if match else 0


def measure(checkpoint: Path, directory: Path, jobs: int | None) -> dict[str, float]:
    """One round."""
    before = fio_rates(checkpoint, directory / "fio.dat")
    container = directory / "model.uring"
    options = ["--force"] if jobs is None else ["--force", "--jobs", jobs]
    packed = run_command("pack", checkpoint, container, *options)
    after = fio_rates(checkpoint, directory / "fio.dat")
    row = {name: (rate + after[name]) / 2 for name, rate in before.items()}
    row["at_once"] = min(row["read_while_writing"], row["write_while_reading"])
    row["by_turns"] = row["read"] * row["write"] / (row["read"] + row["write"])
    row["pack"] = packed["nbytes"] / packed["seconds"] / 1e9
    row["pack_rss"], row["pack_cpu_s_per_gb"] = _cost(packed)
    with open_file(container / "trunk.bin") as trunk:
        row["reader"] = read_once(trunk, Cell(2 << 20), QUEUE_DEPTH).gb_per_s
    verified = run_command("verify", container)
    row["verify"] = verified["nbytes"] / verified["seconds"] / 1e9
    row["verify_rss"], row["verify_cpu_s_per_gb"] = _cost(verified)
    row["pack_ratio"] = row["pack"] / min(row["read"], row["write"])
    row["pack_ratio_copy"] = row["pack"] / max(row["at_once"], row["by_turns"])
    row["verify_ratio"] = row["verify"] / row["reader"]
    shutil.rmtree(container)
    return row


def _cost(result: dict[str, Any]) -> tuple[float, float]:
    return result["peak_rss"], result["cpu_seconds"] / (result["nbytes"] / 1e9)


def show(rows: list[dict[str, float]]) -> None:
    middle = {name: median(row[name] for row in rows) for name in rows[0]}
    print("| | GB/s | share | peak RSS | CPU s/GB |\n|---|---|---|---|---|")
    print(f"| fio, read | {middle['read']:.2f} | | | |")
    print(f"| fio, write | {middle['write']:.2f} | | | |")
    both = f"{middle['read_while_writing']:.2f} + {middle['write_while_reading']:.2f}"
    slower = min(middle["read"], middle["write"])
    print(
        f"| fio, read + write at once | {both} | {middle['at_once'] / slower:.2f} of min(read, write) | | |"
    )
    print(
        f"| read and write by turns (from the first two) | {middle['by_turns']:.2f}"
        f" | {middle['by_turns'] / slower:.2f} of min(read, write) | | |"
    )
    print(
        f"| pack | {middle['pack']:.2f} | {middle['pack_ratio']:.2f} of min(read, write),"
        f" {middle['pack_ratio_copy']:.2f} of a copy by fio | {format_size(int(middle['pack_rss']))}"
        f" | {middle['pack_cpu_s_per_gb']:.2f} |"
    )
    print(f"| reader | {middle['reader']:.2f} | | | |")
    print(
        f"| verify | {middle['verify']:.2f} | {middle['verify_ratio']:.2f} of the reader |"
        f" {format_size(int(middle['verify_rss']))} | {middle['verify_cpu_s_per_gb']:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path(), help="on the drive to measure")
    parser.add_argument("--size", type=parse_size, default=4 * 10**9, help="of the model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, help="of pack; by default its own default")
    parser.add_argument("--gguf", action="store_true", help="a quantised mixture, as GGUF in parts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    version = require_fio()
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-pack-") as name:
        directory = Path(name)
        if options.gguf:
            (directory / "model").mkdir()
            nbytes = write_mixture(directory / "model", options.size, options.size // 4)
        else:
            config = llama_config(layers=layers_for_size(options.size))
            nbytes = write_checkpoint(directory / "model", config, llama_tensors(config))
        with open_file(_weights(directory / "model")[0]) as file:
            where = filesystem_name(file.fd)
        machine = f"{where}, {os.cpu_count()} CPUs, Linux {platform.release()}, {version}"
        what = "a mixture in Q4_K and Q6_K, GGUF in parts" if options.gguf else "bf16 weights"
        conditions = f"{format_size(nbytes)} of {what}, {machine}"
        rows = [measure(directory / "model", directory, options.jobs) for _ in range(options.rounds)]
    if options.json:
        print(json.dumps({"conditions": conditions, "rounds": rows}, indent=1))
        return
    print(conditions)
    show(rows)


if __name__ == "__main__":
    main()
