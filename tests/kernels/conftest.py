"""`kernels`: every implementation that this machine can run. `native`: the compiled ones alone."""

import pytest

from uringinfer.kernels.numpy_kernels import NumpyKernels

try:
    from uringinfer.kernels.native_kernels import NativeKernels
    from uringinfer.kernels.native_library import supported_levels
except ImportError:
    LEVELS = []
else:
    LEVELS = supported_levels()

NEEDS_BUILD = pytest.mark.skip(reason="the native kernels are not built")
NATIVE = LEVELS or [pytest.param("native", marks=NEEDS_BUILD)]


@pytest.fixture(params=["numpy", *NATIVE], scope="session")
def kernels(request):
    return NumpyKernels() if request.param == "numpy" else NativeKernels(threads=2, simd=request.param)


@pytest.fixture(params=NATIVE, scope="session")
def native(request):
    """A function that makes native kernels of one SIMD level with so many threads."""
    return lambda threads: NativeKernels(threads=threads, simd=request.param)
