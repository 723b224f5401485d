"""Measures the products against the rate at which this machine reads memory, in one run.

Prints the section "Kernels" of docs/benchmarks.md:

    python scripts/bench_kernels.py [--formats bf16,mxfp4] [--tokens 1,16] [--json FILE]

A weight is larger than the caches and lies in huge pages, as in a run. A rate is packed bytes over the
shortest of several times; `share` is that rate over the rate at which a plain loop reads the same bytes on as
many threads, timed in turns with the product, so that both meet the same neighbours. From 16 tokens on, a
product is bound by how fast it multiplies: `of BLAS` is its rate over that of a large float32 product of
numpy on all cores, timed once, before the others. The last line compares one step of the delta rule with
reading and writing its state. Numpy is measured with BLAS as it finds itself:
unset OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from uringinfer.kernels import Kernels
from uringinfer.kernels.codebooks import fit_codebook, sample_vectors
from uringinfer.kernels.cpus import usable_cpus
from uringinfer.kernels.formats import Weight, encode, weight_format
from uringinfer.kernels.native_kernels import NativeKernels, read_memory
from uringinfer.kernels.native_search import encode_indices
from uringinfer.kernels.numpy_kernels import NumpyKernels
from uringinfer.kernels.vq_formats import row_scales

COLS = 4096
HUGE_PAGE = 2 << 20
DELTA_SHAPE = (96, 128, 128)
FORMATS = "bf16,f16,f32,fp8,q8,mxfp4,q4,q4_g32,vq3,q8_0,q4_0,q4_1,q5_0,q5_1,q2_k,q3_k,q4_k,q5_k,q6_k"
NUMPY_TOKENS = (1, 16)
MANY_TOKENS = 16
TARGETS = {"bf16": 0.8, "q8": 0.8, "fp8": 0.6, "mxfp4": 0.5, "q4": 0.5, "q4_g32": 0.5, "vq3": 0.3}
TARGETS |= dict.fromkeys(("q8_0", "q4_k", "q5_k", "q6_k"), 0.8)
"""Share of the memory's read rate at T = 1, on all cores."""
NUMPY_TARGET = 4.0
"""GB/s of bf16 that the numpy kernels should multiply at T = 1."""
SPEEDUP_TARGET = 4.0
"""Tokens per second at T = 16 over T = 1."""
DELTA_TARGET = 1.5
"""Time of a step of the delta rule over that of reading and writing its state."""


def huge_array(nbytes: int) -> np.ndarray:
    """uint8 [nbytes] at a multiple of 2 MiB, on huge pages where the kernel gives them."""
    memory = mmap.mmap(-1, nbytes + HUGE_PAGE)
    memory.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(memory, np.uint8)
    start = -array.ctypes.data % HUGE_PAGE
    return array[start : start + nbytes]


def large_weight(name: str, nbytes: int) -> Weight:
    """About `nbytes` of Gaussian weights: one band of rows, encoded once and repeated. Where nothing encodes,
    of any bytes below 64, whose half floats are finite."""
    form, band = weight_format(name), 256
    if form.encode_sections is None:
        rows = max(1, nbytes // form.nbytes(1, COLS))
        data = huge_array(form.nbytes(rows, COLS))
        data[:] = np.resize(np.random.default_rng(0).integers(0, 64, (1 << 20) - 3, np.uint8), data.size)
        return Weight(form, rows, COLS, data)
    values = 0.02 * np.random.default_rng(0).standard_normal((band, COLS), np.float32)
    bands = max(1, nbytes // form.nbytes(band, COLS))
    data = huge_array(form.nbytes(bands * band, COLS))
    packed = encode(name, values)
    parts = form.split(packed.data, band, COLS)
    for whole, part in zip(form.split(data, bands * band, COLS), parts, strict=True):
        whole.reshape(bands, -1)[:] = part
    return Weight(packed.format, bands * band, COLS, data)


def shortest(functions: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Seconds of the fastest of `repeats` calls of each function, called in turns, the first not counted."""
    best = [float("inf")] * len(functions)
    for turn in range(repeats + 1):
        for number, function in enumerate(functions):
            start = time.perf_counter()
            function()
            if turn > 0:
                best[number] = min(best[number], time.perf_counter() - start)
    return best


def measure_blas(repeats: int) -> float:
    """Products a second, in 1e9, of a float32 product of numpy that is large enough to run at BLAS's best."""
    size = 2048
    a, b = np.random.default_rng(0).standard_normal((2, size, size), np.float32)
    (seconds,) = shortest([lambda: a @ b], repeats)
    time.sleep(0.5)  # BLAS's threads spin for a while, and would take processors from what is timed next
    return size**3 / seconds / 1e9


def measure_products(
    kernels: Kernels, weight: Weight, tokens: list[int], repeats: int
) -> list[dict[str, object]]:
    """One row of results for each number of tokens."""
    rows: list[dict[str, object]] = []
    for count in tokens:
        x = np.random.default_rng(count).standard_normal((count, COLS), np.float32)
        out = np.empty((count, weight.rows), np.float32)
        seconds, read_seconds = shortest(
            [
                lambda x=x, out=out: kernels.matmul(weight, x, out),
                lambda: read_memory(weight.data, kernels.threads),
            ],
            repeats if count < 64 else 2,
        )
        rate, read_rate = weight.data.nbytes / seconds, weight.data.nbytes / read_seconds
        rows.append(
            {
                "format": weight.format.name,
                "kernels": kernels.name,
                "simd": kernels.simd,
                "threads": kernels.threads,
                "tokens": count,
                "gb_per_s": rate / 1e9,
                "read_gb_per_s": read_rate / 1e9,
                "share": rate / read_rate,
                "giga_products_per_s": weight.rows * COLS * count / seconds / 1e9,
                "token_rate": count / seconds,
            }
        )
        rows[-1]["speedup"] = rows[-1]["token_rate"] / rows[0]["token_rate"]  # type: ignore[operator]
    return rows


def measure_format(
    name: str, options: argparse.Namespace, threads: list[int], tokens: list[int]
) -> list[dict[str, object]]:
    """Native kernels on each number of threads (not all tokens on one), then numpy."""
    # three bits a weight are many weights to a megabyte, which numpy decodes slowly
    shrink = 2 if weight_format(name).bind else 1
    weight = large_weight(name, (options.megabytes << 20) // shrink)
    rows = []
    for count in threads:
        some = tokens if count == threads[-1] else tokens[:1]
        rows += measure_products(NativeKernels(count, options.simd), weight, some, options.repeats)
    if not options.native_only:
        some = [count for count in tokens if count in NUMPY_TOKENS]
        rows += measure_products(NumpyKernels(threads[-1]), weight, some, min(options.repeats, 2))
    return rows


def measure_encoding(name: str, repeats: int) -> dict[str, object]:
    """How fast one core encodes, in bf16 bytes, with a codebook that is there; how long fitting one takes."""
    matrix = np.random.default_rng(0).standard_normal((256, COLS), np.float32)
    vectors = sample_vectors(matrix)
    codebook = fit_codebook(vectors)
    scales = row_scales(matrix)
    encode_seconds, fit_seconds = shortest(
        [
            lambda: encode_indices(matrix, scales, codebook),
            lambda: fit_codebook(vectors),
        ],
        min(repeats, 3),
    )
    return {"format": name, "mb_per_s": 2 * matrix.size / encode_seconds / 1e6, "fit_seconds": fit_seconds}


def measure_delta(threads: int, repeats: int) -> dict[str, float]:
    """Seconds of a step over sixteen states (more than the caches hold), and of reading and writing them."""
    heads, keys, values = DELTA_SHAPE
    rng = np.random.default_rng(0)
    states = huge_array(16 * 4 * heads * keys * values).view(np.float32).reshape(16, *DELTA_SHAPE)
    states[:] = 0.1
    q, k, v = (rng.standard_normal((1, heads, size), np.float32) / 16 for size in (keys, keys, values))
    beta, decay = rng.random((1, heads), np.float32), rng.random((1, heads, keys), np.float32)
    kernels = NativeKernels(threads)
    parts = np.array_split(states.reshape(-1), threads)

    def step() -> None:
        for state in states:
            kernels.delta_rule(q, k, v, beta, decay, state)

    with ThreadPoolExecutor(threads) as pool:

        def touch() -> None:
            list(pool.map(lambda part: np.multiply(part, np.float32(1), out=part), parts))

        step_seconds, touch_seconds = shortest([step, touch], repeats)
    return {"step_seconds": step_seconds / 16, "touch_seconds": touch_seconds / 16}


def conditions() -> dict[str, object]:
    """What a reader must know to compare."""
    models = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    ]
    return {
        "processor": models[0].split(":")[1].strip() if models else platform.machine(),
        "cpus": usable_cpus(),
        "load average": round(os.getloadavg()[0], 2),
        "wait policy": os.environ.get("OMP_WAIT_POLICY", "libgomp's default"),
        "numpy": np.__version__,
        "openblas": {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS")},
    }


def find(
    rows: list[dict[str, object]], name: str, tokens: int, numpy: bool = False
) -> dict[str, object] | None:
    """The row of a format on all cores; None if it was not measured."""
    some = [
        row
        for row in rows
        if row["format"] == name and row["tokens"] == tokens and (row["kernels"] == "numpy") == numpy
    ]
    return some[-1] if some else None


def target_lines(rows: list[dict[str, object]], delta: dict[str, float]) -> list[str]:
    """The table of what should be reached and what was."""
    lines = ["| target, all cores | measured | |", "|---|---|---|"]

    def line(what: str, value: float, met: bool, unit: str = "") -> None:
        lines.append(f"| {what} | {value:.2f}{unit} | {'met' if met else 'missed'} |")

    for name, share in TARGETS.items():
        if row := find(rows, name, 1):
            value = float(row["share"])  # type: ignore[arg-type]
            line(f"{name}, T = 1: {share} of the memory's read rate", value, value >= share)
    if row := find(rows, "bf16", 1, numpy=True):
        value = float(row["gb_per_s"])  # type: ignore[arg-type]
        line(f"numpy bf16, T = 1: {NUMPY_TARGET:.0f} GB/s", value, value >= NUMPY_TARGET, " GB/s")
    for name in TARGETS:
        if row := find(rows, name, 16):
            value = float(row["speedup"])  # type: ignore[arg-type]
            line(
                f"{name}: tokens/s at T = 16, {SPEEDUP_TARGET:.0f} times T = 1",
                value,
                value >= SPEEDUP_TARGET,
            )
    ratio = delta["step_seconds"] / delta["touch_seconds"]
    line(
        f"a step of the delta rule: {DELTA_TARGET} times reading and writing its state",
        ratio,
        ratio <= DELTA_TARGET,
    )
    return lines


def print_markdown(
    where: dict[str, object],
    blas: float,
    rows: list[dict[str, object]],
    encodings: list[dict[str, object]],
    delta: dict[str, float],
) -> None:
    print("## Kernels\n")
    print(
        f"`python scripts/bench_kernels.py`: {', '.join(f'{key} {value}' for key, value in where.items())}."
    )
    print("The product and a plain reading loop take turns on the same bytes; `share` is the ratio of their")
    print(
        "rates, `x T=1` the tokens per second against one token at a time. `of BLAS` is the share of what a"
    )
    print(f"float32 product of numpy, 2048 x 2048 x 2048, makes on all cores: {blas:.0f} G products/s.\n")
    print(
        "| format | kernels | threads | tokens | GB/s packed | read GB/s | share | x T=1 | G products/s",
        end="",
    )
    print(" | of BLAS |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        rate = float(row["giga_products_per_s"])  # type: ignore[arg-type]
        of_blas = f"{rate / blas:.2f}" if int(row["tokens"]) >= MANY_TOKENS else ""  # type: ignore[call-overload]
        print(
            f"| {row['format']} | {row['simd']} | {row['threads']} | {row['tokens']} | {row['gb_per_s']:.1f}"
            f" | {row['read_gb_per_s']:.1f} | {row['share']:.2f} | {row['speedup']:.1f}"
            f" | {rate:.0f} | {of_blas} |"
        )
    print()
    print("\n".join(target_lines(rows, delta)))
    print("\nWhat bounds T = 16 against T = 1: [lessons.md](lessons.md), products of many tokens.")
    step, touch = delta["step_seconds"], delta["touch_seconds"]
    print(f"\nDelta rule, {DELTA_SHAPE}, one token: {step * 1e3:.2f} ms; reading and writing its state once:")
    print(f"{touch * 1e3:.2f} ms.")
    for row in encodings:
        print(f"\nEncoding {row['format']}: {row['mb_per_s']:.0f} MB of bf16 weights a second on one core;")
        print(f"fitting a codebook: {row['fit_seconds']:.2f} s.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--formats", default=FORMATS, help="comma-separated")
    parser.add_argument("--tokens", default="1,4,16,64", help="comma-separated numbers of tokens")
    parser.add_argument("--megabytes", type=int, default=128, help="size of a weight")
    parser.add_argument("--repeats", type=int, default=5, help="times that each product is timed")
    parser.add_argument("--simd", help="avx512, avx2 or portable; default the best of this machine")
    parser.add_argument("--native-only", action="store_true", help="leave numpy out")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    tokens = sorted({1, *(int(text) for text in options.tokens.split(","))})
    threads = sorted({1, usable_cpus()})
    where, blas = conditions(), measure_blas(options.repeats)
    rows = [
        row for name in options.formats.split(",") for row in measure_format(name, options, threads, tokens)
    ]
    learned = [name for name in options.formats.split(",") if weight_format(name).bind]
    encodings = [measure_encoding(name, options.repeats) for name in learned]
    delta = measure_delta(threads[-1], options.repeats)
    print_markdown(where, blas, rows, encodings, delta)
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "conditions": where,
                    "blas": blas,
                    "products": rows,
                    "encodings": encodings,
                    "delta_rule": delta,
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
