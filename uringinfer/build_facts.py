"""What this installation is made of: versions, native modules, and what the kernel grants them.

Asking opens a ring and closes it again; nothing else is touched.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uringinfer.environment import native_enabled
from uringinfer.kernels import open_kernels
from uringinfer.storage.denial import SWITCHED_OFF, Denial
from uringinfer.storage.uring import open_ring
from uringinfer.version import VERSION

_LIBRARIES = ("numpy", "tokenizers", "gguf", "isal")
_LIBURING = re.compile(r"/\S*/liburing\.so\.([\d.]+)")


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """`liburing` is None where it is not loaded, `io_uring` tells the ring's flags or why there is no ring,
    `kernels` what computes; `libraries` maps each package to its version, None if it is not installed."""

    version: str
    python: str
    system: str
    liburing: str | None
    io_uring: str
    kernels: str
    libraries: dict[str, str | None]

    def to_text(self) -> str:
        """A few lines for a person; the first is name and version alone."""
        packages = ", ".join(f"{name} {version or 'missing'}" for name, version in self.libraries.items())
        return "\n".join(
            [
                f"uringinfer {self.version}",
                f"system:    {self.system}, Python {self.python}",
                f"io_uring:  {self.io_uring}",
                f"liburing:  {self.liburing or 'not loaded'}",
                f"kernels:   {self.kernels}",
                f"packages:  {packages}",
            ]
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_build_facts() -> BuildFacts:
    """The facts of this process on this machine."""
    io_uring = _io_uring()
    return BuildFacts(
        version=VERSION,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        liburing=liburing_version(),
        io_uring=io_uring,
        kernels=describe_kernels(),
        libraries={name: _version(name) for name in _LIBRARIES},
    )


def liburing_version(proc: Path = Path("/proc")) -> str | None:
    """Version of the liburing in this process, from the name of the mapped file; None if there is none."""
    try:
        maps = (proc / "self" / "maps").read_text()
    except OSError:
        return None
    match = _LIBURING.search(maps)
    return match[1] if match else None


def describe_kernels() -> str:
    """The kernels that `open_kernels` chooses, or why there are only the numpy ones."""
    kernels = open_kernels()
    described = f"{kernels.name}, {kernels.threads} thread{'s' if kernels.threads > 1 else ''}"
    if kernels.name != "native":
        return "; ".join([described, *kernels.notes])
    from uringinfer.kernels.native_library import supported_levels

    others = [level for level in supported_levels() if level != kernels.simd]
    also = f" (also {', '.join(others)})" if others else ""
    return f"native, {kernels.simd}{also}, {kernels.threads} thread{'s' if kernels.threads > 1 else ''}"


def _io_uring() -> str:
    ring = open_ring(1) if native_enabled() else SWITCHED_OFF
    if isinstance(ring, Denial):
        return f"none: {ring.reason}"
    ring.close()
    return ", ".join(ring.flags) or "no flags: an old kernel"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
