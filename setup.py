"""Builds the two native modules when a compiler and the headers are there; installs without them
otherwise."""

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

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
        extension.levels = namespace.get("LEVELS", {})
        extension.level_sources = namespace.get("LEVEL_SOURCES", [])
        extension.few_sources = namespace.get("FEW_SOURCES", {})
        extension.depends += extension.level_sources
        extensions.append(extension)
    return extensions


def with_headers(source, directory):
    """The C file and every header that it includes, directly or not."""
    found = [source]
    for path in found:
        names = re.findall(r'^#include "(\w+\.h)"', Path(path).read_text(), re.MULTILINE)
        found += [name for name in (str(Path(directory) / name) for name in names) if name not in found]
    return found


class BuildLevels(build_ext):
    """Compiles an extension's `level_sources` once for each of its `levels`, several at a time, and again
    only when they or their headers have changed."""

    def build_extension(self, ext):
        tasks = [
            (source, level)
            for level in ext.levels
            for source in ext.few_sources.get(level, ext.level_sources)
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            ext.extra_objects = list(pool.map(lambda task: self.compile_at_level(ext, *task), tasks))
        super().build_extension(ext)

    def compile_at_level(self, ext, source, level):
        directory = str(Path(self.build_temp) / level)
        (target,) = self.compiler.object_filenames([source], output_dir=directory)
        if self.force or newer_group(with_headers(source, ext.include_dirs[0]), target):
            self.compiler.compile(
                [source],
                output_dir=directory,
                macros=[("LEVEL", level), (f"LEVEL_{level.upper()}", None)],
                include_dirs=ext.include_dirs,
                extra_postargs=[*ext.extra_compile_args, *ext.levels[level]],
            )
        return target


setup(ext_modules=optional_extensions(), cmdclass={"build_ext": BuildLevels})
