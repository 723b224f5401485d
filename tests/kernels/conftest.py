"""`kernels`: every implementation that this machine can run. `native`: the compiled ones alone."""

import pytest

from uringinfer.environment import native_enabled
from uringinfer.kernels.numpy_kernels import NumpyKernels

WITHOUT = "the native kernels are not built" if native_enabled() else "URINGINFER_NATIVE=0 forbids them"
NATIVE = [pytest.param("native", marks=pytest.mark.skip(reason=WITHOUT))]
if native_enabled():
    try:
        from uringinfer.kernels.native_kernels import NativeKernels
        from uringinfer.kernels.native_library import supported_levels
    except ImportError:
        pass
    else:
        NATIVE = supported_levels()


@pytest.fixture(params=["numpy", *NATIVE], scope="session")
def kernels(request):
    return NumpyKernels() if request.param == "numpy" else NativeKernels(threads=2, simd=request.param)


@pytest.fixture(params=NATIVE, scope="session")
def native(request):
    """A function that makes native kernels of one SIMD level with so many threads."""
    return lambda threads: NativeKernels(threads=threads, simd=request.param)
