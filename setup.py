"""Builds the two native modules when a compiler and the headers are there; installs without them
otherwise."""

import os
import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
BUILDERS = ("native/uring/build_uring.py", "native/kernels/build_kernels.py")


def optional_extensions():
    """One extension for each builder, marked optional: a failed compilation is a warning, not an error."""
    if os.environ.get("URINGINFER_BUILD_NATIVE") == "0":
        return []
    extensions = []
    os.chdir(ROOT)
    for builder in filter(lambda path: (ROOT / path).exists(), BUILDERS):
        sys.path.insert(0, str((ROOT / builder).parent))
        namespace = {"__name__": "builder", "__file__": str(ROOT / builder)}
        exec(compile((ROOT / builder).read_text(), builder, "exec"), namespace)
        extension = namespace["ffibuilder"].distutils_extension(str(Path("build") / "cffi"))
        extension.optional = True
        extensions.append(extension)
    return extensions


setup(ext_modules=optional_extensions())
