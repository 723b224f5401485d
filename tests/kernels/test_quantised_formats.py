import numpy as np
import pytest
import quant_oracle as oracle
from arrays import normal
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.kernels.formats import ENCODED, FORMATS, Weight, decode, decode_rows, encode, weight_format

QUANTISED = [n for n in ENCODED if n not in ("bf16", "f16", "f32") and not weight_format(n).bind]


NVFP4 = ("nvfp4_times", "nvfp4_over")


def relative_error(name, matrix):
    return np.linalg.norm(decode(encode(name, matrix)) - matrix) / np.linalg.norm(matrix)


@pytest.mark.parametrize("name", QUANTISED)
@given(rows=st.integers(1, 40), cols=st.integers(1, 300), seed=st.integers(0, 1 << 30))
@settings(max_examples=6)
def test_any_bytes_decode_to_the_values_of_the_description(name, rows, cols, seed):
    rng = np.random.default_rng(seed)
    form = weight_format(name)
    data = rng.integers(0, 256, form.nbytes(rows, cols), dtype=np.uint8)
    if len(form.sections(rows, cols)) > 1 and name != "mxfp4":  # scales that are no NaN
        scales = form.split(data, rows, cols)[1]
        kind = np.float32 if name.startswith("fp8") else np.float16
        scales[:] = rng.uniform(-4, 4, scales.size // kind().nbytes).astype(kind).view(np.uint8)
    got = form.decode(data, rows, cols)
    for row, col in zip(rng.integers(0, rows, 50), rng.integers(0, cols, 50), strict=True):
        with np.errstate(over="ignore"):
            expected = np.float32(oracle.value(name, data.tobytes(), rows, cols, int(row), int(col)))
        np.testing.assert_array_equal(got[row, col], expected)


@pytest.mark.parametrize("name", QUANTISED)
@given(rows=st.integers(1, 140), cols=st.integers(1, 300), seed=st.integers(0, 1 << 30))
@settings(max_examples=6)
def test_rows_and_panels_decode_as_they_do_in_the_whole(name, rows, cols, seed):
    matrix = normal(seed, rows, cols)
    weight = encode(name, matrix)
    ids = np.random.default_rng(seed).integers(0, rows, 5)
    np.testing.assert_array_equal(decode_rows(weight, ids), decode(weight)[ids])
    cut = weight_format(name).row_granularity
    if cut < rows:
        panel = encode(name, np.ascontiguousarray(matrix[cut:]))
        np.testing.assert_array_equal(decode(panel), decode(weight)[cut:])


@pytest.mark.parametrize("name", QUANTISED)
def test_encoding_what_was_decoded_changes_nothing(name):
    once = encode(name, normal(0, 256, 512))
    np.testing.assert_array_equal(encode(name, decode(once)).data, once.data)


@pytest.mark.parametrize(
    ("name", "bound"),
    [("fp8", 0.028), ("q8", 0.01), ("q8_g32", 0.006), ("mxfp4", 0.12), ("q4", 0.14), ("q4_g32", 0.09)],
)
def test_the_error_on_gaussian_weights_is_what_is_documented(name, bound):
    assert bound / 2 < relative_error(name, normal(0, 512, 1024)) < bound


@pytest.mark.parametrize("name", QUANTISED)
def test_every_weight_is_as_close_as_its_grid_allows(name):
    matrix = normal(0, 64, 256)
    steps = {"fp8": 1 / 16, "q8": 1 / 250, "mxf": 1 / 3, "q4": 1 / 7.9}
    largest = np.abs(matrix.reshape(64, -1, 32)).max()
    off = np.abs(decode(encode(name, matrix)) - matrix)
    assert (off <= largest * next(step for key, step in steps.items() if name.startswith(key))).all()


@pytest.mark.parametrize("name", QUANTISED)
def test_zeros_and_tiny_and_huge_weights_survive(name):
    zero = encode(name, np.zeros((20, 300), np.float32))
    assert (decode(zero) == 0).all()
    for factor in (1e-6, 1e-3, 1e3):
        assert relative_error(name, np.float32(factor) * normal(1, 20, 300)) < 0.13


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_infinities_and_nans_cannot_be_scaled_and_are_refused(name, bad):
    matrix = normal(0, 4, 64)
    matrix[2, 3] = bad
    with pytest.raises(ValueError, match=r"cannot hold the infinities or NaNs of this matrix \(4, 64\)"):
        encode(name, matrix)


def test_mxfp4_rounds_to_the_nearest_and_to_the_even_code_between_two():
    values = np.array([6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -5, 0.26, 5.01], np.float32)
    row = np.zeros((1, 32), np.float32)
    row[0, : len(values)] = values
    expected = [6, 0, 1, 1, 2, 2, 4, 4, -0.0, -4, 0.5, 6]
    np.testing.assert_array_equal(decode(encode("mxfp4", row))[0, : len(values)], expected)


def test_fp8_rounds_to_the_nearest_and_to_the_even_code_between_two():
    step = 2.0**-9  # of the codes below 2^-6
    pairs = [
        (448, 448),
        (1.0625, 1.0),
        (1.1875, 1.25),
        (1.19, 1.25),
        (-1.18, -1.125),
        (15.6, 16),
        (0.5 * step, 0),
        (1.5 * step, 2 * step),
        (7.5 * step, 8 * step),
        (-7.4 * step, -7 * step),
        (8.5 * step, 8 * step),
        (400, 384),
        (432, 448),
    ]
    row = np.array([[value for value, _ in pairs]], np.float32)  # the largest, 448, makes the scale 1
    np.testing.assert_array_equal(decode(encode("fp8", row))[0], [nearest for _, nearest in pairs])


def test_mxfp4_puts_the_even_column_in_the_low_nibble():
    row = np.zeros((1, 32), np.float32)
    row[0, :2] = [4.0, 0.5]
    weight = encode("mxfp4", row)
    assert weight.data[0] == 0x16
    assert weight.data[64] == 127


def test_a_packed_checkpoint_is_joined_bit_for_bit():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (6, 48), dtype=np.uint8)
    scales = rng.integers(100, 140, (6, 3), dtype=np.uint8)
    form = weight_format("mxfp4")
    data = form.join(6, 96, [codes, scales])
    assert form.offsets(6, 96) == (0, 320, 338)
    np.testing.assert_array_equal(data[:288].reshape(6, 48), codes)
    np.testing.assert_array_equal(data[320:].reshape(6, 3), scales)
    assert (data[288:320] == 0).all()
    assert Weight(weight_format("mxfp4"), 6, 96, data).data.nbytes == form.nbytes(6, 96)
    with pytest.raises(ValueError, match=r"section 1 of mxfp4 \[6, 96\] takes 18 bytes, not 17"):
        form.join(6, 96, [codes, scales.reshape(-1)[:17]])


def test_formats_agree_on_how_many_bits_a_weight_takes():
    for form in FORMATS.values():
        scales_of_rows = 16 if form.bind else 32 if form.name in ("fp8_row", *NVFP4) else 0
        bits = (form.nbytes(2048, 2048) * 8 - 2048 * scales_of_rows) / 2048**2
        if form.name.endswith("_order"):
            bits -= 32 / 2048
        assert bits == pytest.approx(form.bits_per_weight, rel=1e-4)
