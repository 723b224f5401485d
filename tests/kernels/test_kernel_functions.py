"""Every function of `Kernels`, in every implementation, against a float64 oracle."""

import kernel_oracle as oracle
import numpy as np
import pytest
from arrays import normal, packed
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.kernels.formats import ENCODED, decode, encode
from uringinfer.kernels.numpy_kernels import NumpyKernels

SHAPES = st.tuples(st.integers(1, 70), st.integers(1, 300), st.integers(1, 70))


def least_counted(weight, decoded):
    """As how large a weight counts at least in the error of a product."""
    # tables hold products rounded to 2^-22 of the largest, also of rows and vectors that are small
    return 0.0 if weight.format.codebook is None else np.abs(decoded).max()


@pytest.mark.parametrize("name", ENCODED)
@given(shape=SHAPES, seed=st.integers(0, 1 << 30))
@settings(max_examples=8)
def test_a_product_of_any_shape_is_that_of_the_decoded_matrix(kernels, name, shape, seed):
    rows, cols, tokens = shape
    weight, x = packed(name, normal(seed, rows, cols)), normal(seed + 1, tokens, cols)
    decoded, error = decode(weight), oracle.activation_error(kernels, name)
    least = least_counted(weight, decoded)
    oracle.assert_product(kernels.matmul(weight, x), decoded, x, error=error, least=least)


@pytest.mark.parametrize("name", ENCODED)
@given(shape=SHAPES, seed=st.integers(0, 1 << 30))
@settings(max_examples=4)
def test_native_products_are_those_of_numpy_to_one_in_a_hundred_thousand(native, name, shape, seed):
    rows, cols, tokens = shape
    weight, x = packed(name, normal(seed, rows, cols)), normal(seed + 1, tokens, cols)
    decoded = decode(weight)
    terms = np.maximum(np.abs(decoded), least_counted(weight, decoded)).sum(axis=1)
    terms = terms * np.abs(x).max(axis=1, keepdims=True)
    difference = np.abs(native(2).matmul(weight, x) - NumpyKernels().matmul(weight, x))
    assert (difference <= 1e-5 * terms).all()


@pytest.mark.parametrize("tokens", [1, 3, 17])
def test_a_product_can_be_written_into_a_column_range_of_a_wider_array(kernels, tokens):
    weight, x = encode("bf16", normal(0, 77, 130)), normal(1, tokens, 130)
    wide = np.full((tokens, 200), np.float32(7))
    view = wide[:, 50:127]
    assert kernels.matmul(weight, x, out=view) is view
    np.testing.assert_array_equal(view, kernels.matmul(weight, x))
    assert (wide[:, :50] == 7).all() and (wide[:, 127:] == 7).all()


def test_infinite_and_nan_weights_come_through(kernels):
    matrix = np.zeros((4, 40), np.float32)
    matrix[0, 3], matrix[1, 39], matrix[2, 0] = np.inf, np.nan, -np.inf
    for name in ("bf16", "f16", "f32"):
        got = kernels.matmul(encode(name, matrix), np.ones((1, 40), np.float32))[0]
        assert got[0] == np.inf and np.isnan(got[1]) and got[2] == -np.inf and got[3] == 0


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("tokens", [1, 3, 11])
def test_products_by_head_take_every_format(kernels, name, tokens):
    heads, per_head, offset, rows, cols = 3, 50, 17, 30, 203
    weight = packed(name, normal(0, heads * per_head, cols))
    blocks = decode(weight).reshape(heads, per_head, cols)[:, offset : offset + rows]
    x, z = normal(1, tokens, heads, cols), normal(2, tokens, heads, rows)
    plain = kernels.matmul_heads(weight, x, offset=offset, rows=rows, transposed=False)
    turned = kernels.matmul_heads(weight, z, offset=offset, rows=rows, transposed=True)
    for head in range(heads):
        error = oracle.activation_error(kernels, name)
        oracle.assert_product(plain[:, head], blocks[head], x[:, head], error=error)
        oracle.assert_product(turned[:, head], blocks[head].T, z[:, head])


@pytest.mark.parametrize("tokens", [1, 7, 12])
@pytest.mark.parametrize("name", ["fp8", "fp8_b16"])
def test_a_nan_code_in_fp8_makes_its_row_a_nan(kernels, name, tokens):
    weight = encode(name, normal(0, 5, 300))
    weight.data[2 * 300 + 130] = 0xFF
    got = kernels.matmul(weight, normal(1, tokens, 300))
    assert np.isnan(got[:, 2]).all() and np.isfinite(got[:, [0, 1, 3, 4]]).all()


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 5, 64), (4, 4097)])
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm_divides_by_the_root_mean_square(kernels, shape, weighted):
    x = 3 * normal(0, *shape)
    weight = normal(1, shape[-1]) if weighted else None
    expected = oracle.rms_norm(x, 1.0 if weight is None else weight.astype(np.float64), 1e-5)
    assert oracle.error(kernels.rms_norm(x, weight, 1e-5), expected) < 1e-6


def test_rms_norm_adds_eps_to_the_mean_square(kernels):
    x = np.full((1, 8), np.float32(1e-3))
    np.testing.assert_allclose(kernels.rms_norm(x, None, 3e-6), 1e-3 / np.sqrt(1e-6 + 3e-6), rtol=1e-6)


@pytest.mark.parametrize(("size", "half"), [(64, 32), (64, 16), (10, 5), (70, 33), (6, 1)])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_turns_the_pairs_of_the_first_channels(kernels, size, half, interleaved):
    x, angle = normal(0, 5, 3, size), normal(1, 5, half)
    cos, sin = np.cos(angle), np.sin(angle)
    expected = oracle.rotary(x, cos, sin, interleaved)
    kernels.rotary(x, cos, sin, interleaved=interleaved)
    assert oracle.error(x, expected) < 1e-6


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh", "swiglu_oai", "situ"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 67), (2, 1024)])
def test_gated_activations_agree_with_their_formulas(kernels, kind, shape):
    gate, up = 6 * normal(0, *shape), 6 * normal(1, *shape)
    expected = oracle.gated(kind, gate, up, 7.0, 1.702)
    assert oracle.error(kernels.gated(kind, gate, up, limit=7.0, alpha=1.702), expected) < 1e-6


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh", "swiglu_oai", "situ"])
def test_gated_activations_of_huge_and_tiny_values_stay_finite_and_right(kernels, kind):
    gate = np.array([[-1e4, -104.0, -88.0, -20.0, -1e-30, 0.0, 1e-30, 1e-4, 20.0, 89.0, 1e4]], np.float32)
    up = np.ones_like(gate)
    with np.errstate(over="ignore"):
        expected = oracle.gated(kind, gate, up, 7.0, 1.702)
    got = kernels.gated(kind, gate, up, limit=7.0, alpha=1.702)
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-36)


@given(
    tokens=st.integers(1, 20),
    start=st.integers(0, 90),
    groups=st.integers(1, 3),
    shared=st.integers(1, 3),
    size=st.integers(1, 70),
    value_size=st.integers(1, 70),
    window=st.sampled_from([0, 1, 5, 64]),
    with_sinks=st.booleans(),
)
@settings(max_examples=40)
def test_attention_sees_what_it_should_and_mixes_by_softmax(
    kernels, tokens, start, groups, shared, size, value_size, window, with_sinks
):
    heads, capacity = groups * shared, start + tokens + 3
    q = normal(1, tokens, heads, size)
    keys, values = normal(2, groups, capacity, size), normal(3, groups, capacity, value_size)
    keys[:, start + tokens :] = values[:, start + tokens :] = np.nan  # positions that nobody may see
    sinks = normal(4, heads) if with_sinks else None
    got = kernels.attention(q, keys, values, start, size**-0.5, window=window, sinks=sinks)
    expected = oracle.attention(q, keys, values, start, size**-0.5, window, sinks)
    assert got.shape == (tokens, heads, value_size)
    assert np.abs(got - expected).max() < 4e-6 * np.abs(values[:, : start + tokens]).max()


def test_attention_does_not_overflow_on_large_scores(kernels):
    q = np.full((2, 1, 4), np.float32(100))
    keys, values = 100 * normal(0, 1, 9, 4), normal(1, 1, 9, 3)
    got = kernels.attention(q, keys, values, 7, 1.0)
    assert oracle.error(got, oracle.attention(q, keys, values, 7, 1.0)) < 1e-6


def test_what_does_not_fit_is_refused_by_every_function(kernels):
    weight, x = encode("bf16", normal(0, 6, 8)), normal(1, 2, 8)
    q, cache = normal(2, 2, 4, 8), normal(3, 2, 10, 8)
    frozen = normal(4, 2, 6)
    frozen.flags.writeable = False
    calls = [
        lambda: kernels.matmul(weight, x, out=frozen),
        lambda: kernels.matmul(weight, x[:, :7].copy()),
        lambda: kernels.matmul(weight, x.astype(np.float64)),
        lambda: kernels.matmul(weight, x, out=np.empty((2, 5), np.float32)),
        lambda: kernels.matmul(weight, x, out=np.empty((6, 2), np.float32).T),
        lambda: kernels.rms_norm(x[:, ::2], None, 1e-5),
        lambda: kernels.rms_norm(x, normal(0, 7), 1e-5),
        lambda: kernels.rotary(q, normal(0, 2, 5), normal(0, 2, 5)),
        lambda: kernels.rotary(q, normal(0, 3, 4), normal(0, 3, 4)),
        lambda: kernels.gated("relu", x, x),
        lambda: kernels.gated("silu", x, x[:1]),
        lambda: kernels.attention(q, cache, cache, 9, 1.0),
        lambda: kernels.attention(q, cache, cache, -1, 1.0),
        lambda: kernels.attention(q[:, :3].copy(), cache, cache, 0, 1.0),
        lambda: kernels.attention(q, cache, cache, 0, 1.0, sinks=normal(0, 3)),
    ]
    for call in calls:
        with pytest.raises(ValueError):
            call()
