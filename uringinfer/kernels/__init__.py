"""Arithmetic on packed weights. Knows nothing of files.

`contract` says what `Kernels` are. `numpy_kernels.NumpyKernels` is the reference and always there,
`native_kernels.NativeKernels` computes the same functions in C; `open_kernels` chooses.
"""

from __future__ import annotations

from uringinfer.environment import native_enabled
from uringinfer.errors import EnvironmentError_, UsageError
from uringinfer.kernels.contract import Kernels, SharedTables
from uringinfer.kernels.cpus import usable_cpus
from uringinfer.kernels.numpy_kernels import NumpyKernels

__all__ = ["MAX_THREADS", "Kernels", "SharedTables", "open_kernels"]

MAX_THREADS = 256
"""More than any machine of today has use for; thousands run OpenMP out of stacks, which kills the process."""


def open_kernels(native: bool | None = None, threads: int | None = None, simd: str | None = None) -> Kernels:
    """The kernels to compute with.

    `native` None takes the native ones if they are built and the environment does not forbid them, and says
    in `notes` why not; True insists on them, False takes numpy. `threads` None means every processor that
    this process may use. `simd` ('avx512', 'avx2', 'portable') overrides the choice made for this machine.
    Raises UsageError for a `threads` or `simd` that cannot be, EnvironmentError_ if `native` is True and
    there are none.
    """
    threads = usable_cpus() if threads is None else threads
    if not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"{threads} threads cannot compute", hint=f"give 1 to {MAX_THREADS}")
    if native is None and not native_enabled():
        return NumpyKernels(threads, ["native kernels are off (URINGINFER_NATIVE=0)"])
    if native is False:
        return NumpyKernels(threads)
    try:
        from uringinfer.kernels.native_kernels import NativeKernels  # late: it may not be built
    except ImportError as error:
        missing = f"native kernels are not built ({error})"
        remedy = "build them with a C compiler: `python setup.py build_ext --inplace`"
        if native:
            raise EnvironmentError_(missing, hint=remedy) from error
        return NumpyKernels(threads, [f"{missing}; {remedy}"])
    return NativeKernels(threads, simd)
