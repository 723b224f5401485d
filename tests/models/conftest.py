"""`kernels`: what this machine computes with, on one thread, the models being tiny; `golden`: every case."""

import golden_files
import pytest
from golden_cases import CASES

from uringinfer.kernels import open_kernels


@pytest.fixture(scope="session")
def kernels():
    return open_kernels(threads=1)


@pytest.fixture(scope="session")
def native():
    kernels = open_kernels()
    if kernels.name != "native":
        pytest.skip(f"needs the native kernels: {'; '.join(kernels.notes)}")
    return kernels


@pytest.fixture(params=list(CASES))
def golden(request):
    return golden_files.load(request.param)
