import numpy as np
import pytest

from uringinfer.engine.compute_clock import clock_compute


class RecordingKernels:
    """Takes a tenth of a second for each product, by its own clock."""

    def __init__(self):
        self.products = []
        self.now = 0.0

    def matmul(self, weight, x):
        self.now += 0.1
        self.products.append((weight.rows, weight.cols, weight.data.nbytes, x.shape))
        return np.zeros((1, weight.rows), np.float32)


def test_the_rate_is_the_bytes_of_the_matrices_over_the_time_of_a_round(tiny):
    kernels = RecordingKernels()

    rate = clock_compute(tiny.container, kernels, 0.0, clock=lambda: kernels.now)

    # two rounds, of which the first warms up and is not counted
    half = len(kernels.products) // 2
    assert kernels.products[:half] == kernels.products[half:]
    nbytes = sum(nbytes for _, _, nbytes, _ in kernels.products[:half])
    assert rate == pytest.approx(nbytes / (0.1 * half))


def test_every_streamed_matrix_is_multiplied_with_one_token_and_no_embedding_row(tiny):
    kernels = RecordingKernels()

    clock_compute(tiny.container, kernels, 0.0, clock=lambda: kernels.now)

    expected = sum(
        part.nbytes
        for segment in tiny.container.streamed_segments
        for part in segment.parts
        if len(part.shape) == 2
    )
    half = len(kernels.products) // 2
    assert sum(nbytes for _, _, nbytes, _ in kernels.products[:half]) == expected
    assert all(shape == (1, cols) for _, cols, _, shape in kernels.products)


def test_a_sample_bounds_the_memory_that_clocking_takes(tiny):
    kernels = RecordingKernels()

    clock_compute(tiny.container, kernels, 0.0, sample_bytes=1, clock=lambda: kernels.now)

    largest = max(segment.nbytes for segment in tiny.container.streamed_segments)
    assert 0 < sum(nbytes for _, _, nbytes, _ in kernels.products) <= 2 * largest


def test_the_weights_are_the_models_own(with_numpy):
    seen = []

    class Kernels(RecordingKernels):
        def matmul(self, weight, x):
            seen.append(weight.data.tobytes())
            return super().matmul(weight, x)

    kernels = Kernels()
    clock_compute(with_numpy.container, kernels, 0.0, clock=lambda: kernels.now)

    trunk = with_numpy.container.trunk_path.read_bytes()
    assert all(data in trunk for data in seen)


def test_it_goes_on_for_the_seconds_that_were_asked_for(tiny):
    kernels = RecordingKernels()

    clock_compute(tiny.container, kernels, 30.0, clock=lambda: kernels.now)

    assert kernels.now >= 30.0
