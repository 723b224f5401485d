"""mxfp4, q4 and q4_g32 are multiplied as integers: what is exact, and how far the rest may be off."""

import numpy as np
import pytest
from arrays import normal

from uringinfer.kernels.formats import decode, encode, weight_format

INTEGER = ["mxfp4", "q4", "q4_g32"]
PANEL = 512


def weight_of_random_codes(name, rows, cols, seed):
    """Every code, every group's scale a power of two from 1 to 8."""
    rng = np.random.default_rng(seed)
    weight = encode(name, normal(seed, rows, cols))
    form = weight_format(name)
    codes, scales = form.split(weight.data, rows, cols)
    codes[:] = rng.integers(0, 256, codes.size)
    if name == "mxfp4":
        scales[:] = rng.integers(127, 131, scales.size)
    else:
        scales[:] = np.exp2(rng.integers(0, 4, scales.size // 2)).astype(np.float16).view(np.uint8)
    return weight


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize(("cols", "tokens"), [(32, 1), (511, 3), (512, 1), (777, 4), (1300, 17)])
def test_products_of_whole_numbers_are_exact(native, name, cols, tokens):
    weight = weight_of_random_codes(name, 37, cols, seed=cols)
    x = np.random.default_rng(tokens).integers(-40, 41, (tokens, cols)).astype(np.float32)
    np.testing.assert_array_equal(
        native(2).matmul(weight, x).astype(np.float64),
        x.astype(np.float64) @ decode(weight).T.astype(np.float64),
    )


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize(
    "value", [1.0, -1.0, np.nextafter(np.float32(2), np.float32(1)), 8355711.0, -16711423.0, 3e-30]
)
def test_an_activation_at_any_place_of_its_scale_comes_through(native, name, value):
    """Anywhere between two powers of two, and beside the largest number that three bytes hold."""
    weight = weight_of_random_codes(name, 8, 96, seed=1)
    for column in range(96):
        x = np.zeros((1, 96), np.float32)
        x[0, column] = value
        np.testing.assert_allclose(
            native(1).matmul(weight, x)[0], decode(weight)[:, column] * np.float32(value), rtol=2e-7, atol=0
        )


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize("outlier", [1.0, 30.0, 1000.0])
def test_the_error_is_a_step_of_the_largest_activation_of_a_panel(native, name, outlier):
    weight, x = encode(name, normal(0, 64, 2 * PANEL)), normal(1, 5, 2 * PANEL)
    x[:, 3] = 4 * outlier
    expected = x.astype(np.float64) @ decode(weight).T.astype(np.float64)
    largest = np.abs(x.reshape(5, 2, PANEL)).max(axis=2)
    weights = np.linalg.norm(decode(weight).reshape(64, 2, PANEL), axis=2)
    # Rounding errors are spread evenly over a step, 2^-22 of the largest; five standard deviations.
    rounding = 5 * 2.0**-22 / np.sqrt(12) * np.sqrt((largest**2) @ (weights**2).T)
    summing = 3e-7 * np.sqrt((x.astype(np.float64) ** 2) @ (decode(weight).T.astype(np.float64) ** 2))
    assert (np.abs(native(2).matmul(weight, x) - expected) <= rounding + summing).all()


@pytest.mark.parametrize("name", INTEGER)
def test_a_small_panel_does_not_suffer_from_a_large_one(native, name):
    weight = encode(name, normal(0, 16, 2 * PANEL))
    x = normal(1, 1, 2 * PANEL)
    x[0, :PANEL] = 0
    alone = native(1).matmul(weight, 1e-6 * x)
    half = decode(weight)
    half[:, :PANEL] = 0
    large = 1e-6 * x
    large[0, :PANEL] = 1e6
    both = native(1).matmul(encode(name, half), large)
    np.testing.assert_allclose(both, alone, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("tokens", [3, 9])
def test_a_token_that_is_not_finite_gives_nans_and_spoils_no_other(native, name, bad, tokens):
    weight, x = encode(name, normal(0, 11, 700)), normal(1, tokens, 700)
    good = native(1).matmul(weight, x)
    x[1, 650] = bad
    got = native(2).matmul(weight, x)
    assert np.isnan(got[1]).all()
    np.testing.assert_array_equal(np.delete(got, 1, axis=0), np.delete(good, 1, axis=0))


@pytest.mark.parametrize("byte", [0, 1, 40, 127, 200, 225, 255])
def test_every_e8m0_scale_is_worth_what_it_says(native, byte):
    weight = encode("mxfp4", normal(0, 4, 64))
    weight_format("mxfp4").split(weight.data, 4, 64)[1][:] = byte
    x = np.float32(2.0**20) * normal(1, 2, 64) if byte < 127 else np.float32(2.0**-10) * normal(1, 2, 64)
    expected = x.astype(np.float64) @ decode(weight).T.astype(np.float64)
    largest = np.abs(expected).max()
    np.testing.assert_allclose(native(1).matmul(weight, x), expected, rtol=0, atol=1e-6 * largest)
