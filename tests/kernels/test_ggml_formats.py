"""The types of ggml against the `gguf` package's dequantisers, on random bytes: every pattern is a weight."""

import numpy as np
import pytest
from arrays import assert_same_bits, normal
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from uringinfer.kernels.formats import Weight, decode, decode_rows, weight_format
from uringinfer.kernels.ggml_formats import FORMAT_OF_TYPE
from uringinfer.kernels.numpy_kernels import NumpyKernels


def random_blocks(kind, rows, blocks, seed=0):
    """uint8 [rows, bytes of a row], half floats and E4M3 of any size among them, infinities and NaNs too."""
    nbytes = blocks * GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    return np.random.default_rng(seed).integers(0, 256, (rows, nbytes), np.uint8)


def by_gguf(kind, rows):
    with np.errstate(all="ignore"):
        return dequantize(rows, GGMLQuantizationType[kind])


def kept(kind, rows, cols):
    return Weight(weight_format(FORMAT_OF_TYPE[kind]), len(rows), cols, rows.reshape(-1))


@pytest.mark.parametrize("kind", FORMAT_OF_TYPE)
def test_weights_are_what_the_gguf_package_says(kind):
    rows = random_blocks(kind, 70, 3 * 1024 // GGML_QUANT_SIZES[GGMLQuantizationType[kind]][0])
    expected = by_gguf(kind, rows)
    weight = kept(kind, rows, expected.shape[1])
    assert_same_bits(decode(weight), expected)
    ids = np.array([69, 0, 3, 3])
    assert_same_bits(decode_rows(weight, ids), expected[ids])


def test_rows_longer_than_a_tile_are_decoded_in_pieces():
    rows = random_blocks("Q4_K", 2, 600)
    assert_same_bits(decode(kept("Q4_K", rows, 600 * 256)), by_gguf("Q4_K", rows))


def test_a_last_block_is_whole_and_only_its_columns_count():
    rows = random_blocks("IQ3_S", 5, 2)
    assert weight_format("iq3_s").nbytes(5, 300) == rows.nbytes
    assert_same_bits(decode(kept("IQ3_S", rows, 300)), np.ascontiguousarray(by_gguf("IQ3_S", rows)[:, :300]))


def test_numpy_kernels_multiply_them():
    rows = np.zeros((40, 3 * 144), np.uint8)
    rows[:] = random_blocks("Q4_K", 40, 3)
    rows.reshape(40, 3, 144)[:, :, :4] = np.array([0.01, 0.02], np.float16).view(np.uint8)
    x = normal(1, 5, 768)
    expected = x.astype(np.float64) @ by_gguf("Q4_K", rows).astype(np.float64).T
    y = NumpyKernels().matmul(kept("Q4_K", rows, 768), x)
    np.testing.assert_allclose(y, expected, atol=1e-5 * np.abs(expected).max())
