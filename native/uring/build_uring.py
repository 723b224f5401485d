"""Builds `uringinfer.storage._uring`: the C API of uring.h through cffi, linked with liburing.

The declarations are read from the header, so that there is one text of them.
"""

import os
from pathlib import Path

from cffi import FFI

SANITIZE = os.environ.get("URINGINFER_SANITIZE", "").split()
HERE = Path("native") / "uring"  # relative to the root, where setup.py runs: absolute paths break sdists

_, declarations, _ = (Path(__file__).parent / "uring.h").read_text().split("/* cdef:")

ffibuilder = FFI()
ffibuilder.cdef(declarations.partition("*/")[2])
ffibuilder.set_source(
    "uringinfer.storage._uring",
    '#include "uring.h"',
    sources=[str(HERE / "uring.c")],
    depends=[str(HERE / "uring.h")],
    include_dirs=[str(HERE)],
    libraries=["uring"],
    define_macros=[("_GNU_SOURCE", None)],
    extra_compile_args=["-std=c11", "-O2", "-Wall", "-Wextra", *SANITIZE],
    extra_link_args=SANITIZE,
)
