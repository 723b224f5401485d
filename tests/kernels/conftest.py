"""`kernels`: every implementation that this machine can run."""

import pytest

from uringinfer.kernels.numpy_kernels import NumpyKernels

IMPLEMENTATIONS = {"numpy": NumpyKernels}


@pytest.fixture(params=list(IMPLEMENTATIONS), scope="session")
def kernels(request):
    return IMPLEMENTATIONS[request.param]()
