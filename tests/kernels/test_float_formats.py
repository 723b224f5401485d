import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from kernel_oracle import bf16_value

from uringinfer.errors import UsageError
from uringinfer.kernels.formats import FORMATS, decode, decode_rows, encode, weight_format

SPECIAL = np.array(
    [[0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, 1e-40, -1e-45, 3.4e38, 65504.0, 65520.0, 5.9e-8]], np.float32
)


def random_matrix(rows, cols, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, cols)).astype(np.float32)


def test_every_bf16_pattern_decodes_to_its_definition():
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[(bits >> 7 & 255) != 255]
    weight = weight_format("bf16")
    got = weight.decode(bits.view(np.uint8), 2, len(bits) // 2).reshape(-1)
    np.testing.assert_array_equal(got.astype(np.float64), bf16_value(bits))


def test_bf16_takes_the_nearest_value_and_the_even_one_between_two():
    finite = np.arange(0x7F80, dtype=np.uint16)
    values = bf16_value(finite)
    middle = (values[:-1] + values[1:]) / 2  # exact in float32
    got = encode("bf16", middle.astype(np.float32)[None]).data.view(np.uint16)
    np.testing.assert_array_equal(got, np.where(finite[:-1] % 2 == 0, finite[:-1], finite[1:]))
    above = np.nextafter(middle.astype(np.float32), np.float32(np.inf))
    np.testing.assert_array_equal(encode("bf16", above[None]).data.view(np.uint16), finite[1:])


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FFFFFFF, 0xFFC00000, 0xFF800001])
def test_a_nan_stays_a_nan_in_bf16(bits):
    nan = np.array([[bits]], np.uint32).view(np.float32)
    assert np.isnan(decode(encode("bf16", nan))).all()


def test_special_values_survive_each_float_format():
    np.testing.assert_array_equal(decode(encode("f32", SPECIAL)), SPECIAL)
    half = decode(encode("f16", SPECIAL))[0]
    np.testing.assert_array_equal(half[[0, 2, 3, 4, 5, 9]], SPECIAL[0, [0, 2, 3, 4, 5, 9]])
    assert half[10] == np.inf and half[11] > 0
    coarse = decode(encode("bf16", SPECIAL))[0]
    np.testing.assert_allclose(coarse[[2, 3, 9]], SPECIAL[0, [2, 3, 9]], rtol=1 / 256)
    assert np.signbit(coarse[1]) and coarse[4] == np.inf and coarse[5] == -np.inf


@pytest.mark.parametrize("name", ["bf16", "f16", "f32"])
@given(data=st.data(), rows=st.integers(1, 9), cols=st.integers(1, 9))
@settings(max_examples=30)
def test_encoding_what_was_decoded_changes_nothing(name, data, rows, cols):
    matrix = data.draw(arrays(np.float32, (rows, cols), elements=st.floats(-60000, 60000, width=32)))
    once = encode(name, matrix)
    assert once.data.nbytes == FORMATS[name].nbytes(rows, cols) == rows * cols * (4 if name == "f32" else 2)
    np.testing.assert_array_equal(encode(name, decode(once)).data, once.data)


@pytest.mark.parametrize("name", ["bf16", "f16", "f32"])
def test_looked_up_rows_are_the_rows_of_the_decoded_matrix(name):
    weight = encode(name, random_matrix(50, 33))
    ids = np.array([3, 49, 3, 0])
    np.testing.assert_array_equal(decode_rows(weight, ids), decode(weight)[ids])
    with pytest.raises(IndexError):
        decode_rows(weight, np.array([50]))


def test_a_run_of_the_wrong_length_is_refused_with_both_sizes():
    with pytest.raises(ValueError, match=r"bf16 \[2, 3\] takes 12 bytes, not \(11,\)"):
        weight_format("bf16").decode(np.zeros(11, np.uint8), 2, 3)


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match=r"'int3' is no weight format; choose one of bf16, f16, f32, fp8"):
        weight_format("int3")
