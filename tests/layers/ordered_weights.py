"""`Weights` over arrays in memory, which insist on the declared order and give each tensor once."""

from contextlib import contextmanager

import numpy as np

from uringinfer.kernels.formats import encode
from uringinfer.kernels.numpy_kernels import NumpyKernels


class OrderedWeights:
    """float32 arrays by container name; `specs` is what a layer declares."""

    def __init__(self, specs, arrays, kernels=None):
        self.kernels = kernels or NumpyKernels()
        self._arrays = arrays
        self._waiting = [spec.name for spec in specs]
        for spec in specs:
            assert arrays[spec.name].shape in (spec.shape, *spec.other_shapes), spec

    def _take(self, name):
        assert self._waiting, f"{name} asked for after the last tensor"
        assert self._waiting.pop(0) == name
        return self._arrays[name]

    def matmul(self, name, x):
        return self.kernels.matmul(encode("f32", self._take(name)), np.ascontiguousarray(x))

    def vector(self, name):
        return self._take(name).copy()

    @contextmanager
    def weight(self, name):
        yield encode("f32", self._take(name))

    def assert_all_used(self):
        assert not self._waiting


def random_arrays(specs, seed):
    """Matrices of unit gain, vectors around one."""
    random = np.random.default_rng(seed)
    arrays = {}
    for spec in specs:
        noise = random.standard_normal(spec.shape).astype(np.float32)
        arrays[spec.name] = noise * spec.shape[1] ** -0.5 if spec.kind == "matrix" else 1 + noise / 4
    return arrays
