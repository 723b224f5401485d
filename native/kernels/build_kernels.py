"""Builds `uringinfer.kernels._kernels` with cffi in API mode; setup.py runs this file and takes `ffibuilder`.

The instruction sets are chosen per file inside the C sources and at run time, so the flags name none and the
module runs on any processor of the architecture. `-ffp-contract=off` keeps every multiplication and addition
as it is written: fused where the source says so, and the same in vectors and in what is left over. Python's
own flags have `-fwrapv`, which slows addresses down; no sum here relies on signed integers that wrap.
"""

from pathlib import Path

from cffi import FFI

HERE = Path("native") / "kernels"
SOURCES = (
    "attention.c",
    "gates.c",
    "heads.c",
    "networks.c",
    "ops_avx2.c",
    "ops_avx512.c",
    "ops_portable.c",
    "pointwise.c",
    "product.c",
    "recurrent.c",
    "read.c",
    "simd.c",
    "vq.c",
    "vq_vbmi.c",
)
FLAGS = ["-std=c11", "-O3", "-fopenmp", "-ffp-contract=off", "-fno-wrapv", "-Wall", "-Wextra"]

ffibuilder = FFI()
ffibuilder.cdef((HERE / "kernels.h").read_text())
ffibuilder.set_source(
    "uringinfer.kernels._kernels",
    '#include "kernels.h"',
    sources=[str(HERE / name) for name in SOURCES],
    depends=[str(path) for path in sorted(HERE.glob("*.h"))],
    include_dirs=[str(HERE)],
    extra_compile_args=FLAGS,
    extra_link_args=["-fopenmp"],
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
