"""Builds `uringinfer.kernels._kernels` with cffi in API mode; setup.py runs this file and takes `ffibuilder`.

What depends on an instruction set (LEVEL_SOURCES) is compiled once for each level, with its flags (setup.py);
which level runs is chosen at run time, so the module runs on any processor of the architecture.
`-ffp-contract=off` keeps every multiplication and addition as it is written: fused where the source says so,
and the same in vectors and in what is left over. Python's own flags have `-fwrapv`, which slows addresses
down; no sum here relies on signed integers that wrap.
"""

import os
import platform
from pathlib import Path

from cffi import FFI

HERE = Path("native") / "kernels"
SOURCES = (
    "attention.c",
    "gates.c",
    "heads.c",
    "networks.c",
    "pointwise.c",
    "product.c",
    "recurrent.c",
    "read.c",
    "simd.c",
    "vq.c",
    "vq_vbmi.c",
)
LEVEL_SOURCES = [str(path) for path in (HERE / "ops.c", *sorted((HERE / "formats").glob("*.c")))]
LEVELS: dict[str, list[str]] = {"portable": []}
"""SIMD levels, each with the flags that allow its instructions."""
if platform.machine() in ("x86_64", "AMD64"):
    LEVELS["avx2"] = ["-mavx2", "-mfma", "-mf16c"]
    wide = ("f", "bw", "vl", "dq", "vnni")
    LEVELS["avx512"] = [*LEVELS["avx2"], "-mbmi2", *(f"-mavx512{part}" for part in wide)]
    LEVELS["avx512_vbmi"] = [*LEVELS["avx512"], "-mavx512vbmi"]
FEW_SOURCES = {"avx512_vbmi": [str(HERE / "formats" / "grids.c")]}
"""What a level that is part of another one has, which asks for it at run time; the others have all."""
FLAGS = ["-std=c11", "-O3", "-fopenmp", "-ffp-contract=off", "-fno-wrapv", "-Wall", "-Wextra"]
SANITIZE = os.environ.get("URINGINFER_SANITIZE", "").split()
"""More flags, for the compiler and the linker: those of `scripts/test.sh --asan`."""

ffibuilder = FFI()
ffibuilder.cdef((HERE / "kernels.h").read_text())
ffibuilder.set_source(
    "uringinfer.kernels._kernels",
    '#include "kernels.h"',
    sources=[str(HERE / name) for name in SOURCES],
    depends=[str(path) for path in sorted(HERE.rglob("*.h"))],
    include_dirs=[str(HERE)],
    extra_compile_args=[*FLAGS, *SANITIZE],
    extra_link_args=["-fopenmp", *SANITIZE],
)
