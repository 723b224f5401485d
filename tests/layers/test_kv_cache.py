"""The cache of a sliding window: what it drops, attention never sees."""

import numpy as np
import pytest

from uringinfer.kernels import open_kernels
from uringinfer.layers.kv_cache import KeyValueCache

HEADS, GROUPS, DIM, LENGTH = 4, 2, 24, 300
RNG = np.random.default_rng(7)
Q = RNG.standard_normal((LENGTH, HEADS, DIM)).astype(np.float32)
K, V = RNG.standard_normal((2, LENGTH, GROUPS, DIM)).astype(np.float32)
SINKS = RNG.standard_normal(HEADS).astype(np.float32)


def attend(kernels, cache, start, stop, window):
    """Positions [start, stop) through the cache, piece by piece -> [T, HEADS, DIM]."""
    outputs = []
    for piece in cache.pieces(stop - start):
        here = slice(start + piece.start, start + piece.stop)
        row = cache.write(here.start, K[here], V[here])
        outputs.append(
            kernels.attention(Q[here], cache.keys, cache.values, row, 0.3, window=window, sinks=SINKS)
        )
    return np.concatenate(outputs)


def everything(kernels, window):
    """The same with every position cached and all of them at once."""
    cache = KeyValueCache(GROUPS, LENGTH, DIM, DIM)
    cache.write(0, K, V)
    return kernels.attention(Q, cache.keys, cache.values, 0, 0.3, window=window, sinks=SINKS)


@pytest.mark.parametrize("window", [1, 2, 7, 64, 100, 299])
@pytest.mark.parametrize("chunks", [[1] * LENGTH, [LENGTH], [5, 90, 1, 1, 64, 139]])
def test_attention_over_two_windows_of_rows_is_bit_for_bit_that_over_all_positions(window, chunks):
    kernels = open_kernels()
    if kernels.name != "native":
        pytest.skip("numpy's sums depend on how many rows there are")
    cache = KeyValueCache(GROUPS, LENGTH, DIM, DIM, window)
    assert cache.keys.shape[1] == min(LENGTH, 2 * window)

    ends = np.cumsum(chunks)
    parts = [attend(kernels, cache, end - n, end, window) for end, n in zip(ends, chunks, strict=True)]

    np.testing.assert_array_equal(np.concatenate(parts), everything(kernels, window))


@pytest.mark.parametrize("window", [0, 3, 40, 200])
@pytest.mark.parametrize("length", [1, 39, 40, 41, 250])
def test_a_cache_filled_from_another_ones_arrays_goes_on_in_its_place(window, length):
    kernels = open_kernels()
    cache, other = (KeyValueCache(GROUPS, LENGTH, DIM, DIM, window) for _ in range(2))
    attend(kernels, cache, 0, length, window)

    saved, restored = cache.arrays(length), other.arrays(length)
    for name, array in restored.items():
        array[:] = saved[name]

    assert saved["keys"].shape[1] == (min(length, window - 1) if window else length)
    np.testing.assert_allclose(
        attend(kernels, other, length, LENGTH, window),
        attend(kernels, cache, length, LENGTH, window),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("chunk", [1, 20, 40, 130])
def test_a_chunk_can_be_taken_back_unless_it_moved_the_window_beyond(chunk):
    kernels, window, fed = open_kernels(), 40, 150
    cache, undisturbed = (KeyValueCache(GROUPS, LENGTH, DIM, DIM, window) for _ in range(2))
    for other in (cache, undisturbed):
        attend(kernels, other, 0, fed, window)
    attend(kernels, cache, fed, fed + chunk, window)

    assert cache.can_rewind(fed) == (chunk <= window)
    if cache.can_rewind(fed):
        again = attend(kernels, cache, fed, fed + 30, window)
        np.testing.assert_allclose(again, attend(kernels, undisturbed, fed, fed + 30, window), rtol=1e-5)


@pytest.mark.parametrize("window", [0, 5, 1000])
def test_its_bytes_are_known_beforehand(window):
    cache = KeyValueCache(GROUPS, LENGTH, DIM, DIM + 8, window)
    assert cache.nbytes == KeyValueCache.bytes_for(GROUPS, LENGTH, DIM, DIM + 8, window)
