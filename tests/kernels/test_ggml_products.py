"""Native products straight out of ggml's blocks: against the decoded weights, and the first law."""

import kernel_oracle as oracle
import numpy as np
import pytest
from arrays import assert_same_bits, normal
from ggml_blocks import HALVES, random_weight

from uringinfer.kernels.formats import Weight, decode
from uringinfer.kernels.numpy_kernels import NumpyKernels

COLS = {name: 1280 if name.endswith("_k") else 1184 for name in HALVES}
"""No whole number of panels of 512 columns; for blocks of 32, an odd number of them."""
MINIMA = ("q4_1", "q5_1", "q2_k", "q4_k", "q5_k")
"""Whose weights are differences of what may be larger."""
TOKENS = 70


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("tokens", [1, 5])
def test_a_product_is_that_of_the_decoded_matrix(kernels, name, tokens):
    weight, x = random_weight(name, 37, COLS[name]), normal(1, tokens, COLS[name])
    x[:, 3] = 50  # the largest of its panel by far, as models have them
    decoded = decode(weight)
    least = np.abs(decoded).max() if name in MINIMA else 0.0
    oracle.assert_product(kernels.matmul(weight, x), decoded, x, error=2**-22, least=least)


@pytest.mark.parametrize("name", HALVES)
def test_numpy_gives_the_same_to_one_in_a_hundred_thousand(native, name):
    weight, x = random_weight(name, 33, COLS[name]), normal(1, 3, COLS[name])
    found, expected = native(1).matmul(weight, x), NumpyKernels().matmul(weight, x)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("name", HALVES)
def test_neither_chunks_nor_threads_change_a_bit(native, name):
    weight, x = random_weight(name, 150, COLS[name]), normal(1, TOKENS, COLS[name])
    whole = native(2).matmul(weight, x)
    for threads, chunk in ((1, 1), (1, 7), (2, 32)):
        kernels = native(threads)
        parts = [kernels.matmul(weight, x[start : start + chunk]) for start in range(0, TOKENS, chunk)]
        assert_same_bits(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", HALVES)
def test_a_row_has_the_bits_that_it_has_alone(native, name):
    weight, x = random_weight(name, 21, COLS[name]), normal(1, 2, COLS[name])
    whole, width = native(1).matmul(weight, x), weight.data.size // 21
    for row in (0, 13, 20):
        alone = Weight(weight.format, 1, weight.cols, weight.data[row * width : (row + 1) * width])
        assert_same_bits(native(1).matmul(alone, x)[:, 0].copy(), whole[:, row].copy())


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_by_head_are_those_of_the_decoded_matrix(kernels, name, transposed):
    heads, per_head, offset, rows = 3, 20, 4, 9
    weight = random_weight(name, heads * per_head, COLS[name])
    blocks = decode(weight).reshape(heads, per_head, -1)[:, offset : offset + rows].astype(np.float64)
    x = normal(2, 4, heads, rows if transposed else COLS[name])
    found = kernels.matmul_heads(weight, x, offset=offset, rows=rows, transposed=transposed)
    expected = np.einsum("thr,hrc->thc" if transposed else "thc,hrc->thr", x.astype(np.float64), blocks)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_activation_that_is_not_finite_spoils_its_own_token_alone(native, name, bad):
    weight, x = random_weight(name, 9, COLS[name]), normal(1, 3, COLS[name])
    x[1, 700] = bad
    found = native(1).matmul(weight, x)
    assert np.isfinite(found[[0, 2]]).all() and not np.isfinite(found[1]).any()
