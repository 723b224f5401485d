"""Native products with formats that come out of files, at every SIMD level: their weights are those of the
numpy decoder, to the bit, and neither tokens nor threads show."""

import numpy as np
import pytest
from arrays import assert_same_bits, normal

from uringinfer.kernels.formats import ENCODED, FORMATS, Weight, decode, weight_format
from uringinfer.kernels.numpy_kernels import NumpyKernels

native = pytest.importorskip("uringinfer.kernels.native_kernels")
call = pytest.importorskip("uringinfer.kernels.native_call")


def multiplied(form):
    return call.has_products(form) or call.has_ordered_products(form)


KEPT = [name for name, form in FORMATS.items() if name not in ENCODED and multiplied(form)]
LEVELS = native.supported_levels()
PLACES = {  # where a block has float16 numbers; those of the types not named here are its first two bytes
    **dict.fromkeys(("q2_k",), (80, 82)),
    **dict.fromkeys(("q4_k", "q5_k", "q4_1", "q5_1"), (0, 2)),
    **dict.fromkeys(("q3_k",), (108,)),
    **dict.fromkeys(("q6_k",), (208,)),
    **dict.fromkeys(("tq1_0",), (52,)),
    **dict.fromkeys(("tq2_0",), (64,)),
    **dict.fromkeys(("iq1_m", "nvfp4", "ggml_mxfp4"), ()),
}
MINIMA = ("q4_1", "q5_1", "q2_k", "q4_k", "q5_k", "q6_k")
BLOCK_BYTES = {
    name: weight_format(name).nbytes(1, 1) for name in KEPT if len(weight_format(name).sections(1, 1)) == 1
}


def some_weight(name, rows, cols, seed=0):
    """Random codes; scales that are numbers, of about 0.01."""
    form, rng = weight_format(name), np.random.default_rng(seed)
    data = rng.integers(0, 256, form.nbytes(rows, cols), np.uint8)
    sections = form.split(data, rows, cols)
    if len(sections) == 1:
        blocks = data.reshape(-1, BLOCK_BYTES[name])
        for place in PLACES.get(name, (0,)):
            halves = rng.uniform(0.005, 0.02, len(blocks)).astype(np.float16)
            blocks[:, place : place + 2] = halves.view(np.uint8).reshape(-1, 2)
        if name == "iq1_m":  # four nibbles of a float16: an exponent of 8 to 11
            blocks[:, 55] = blocks[:, 55] & 15 | 0x20
        if name == "nvfp4":
            blocks[:, :4] &= 0x3F
        if name == "ggml_mxfp4":
            blocks[:, 0] = 118 + blocks[:, 0] % 8
        return Weight(form, rows, cols, data)
    numbers = [1] + ([2] if name.endswith("_biases") else [])
    for section in (sections[i] for i in numbers if name.startswith("q4")):
        values = rng.uniform(0.005, 0.02, section.size // 2).astype(np.float32)
        bits = values.view(np.uint32) >> 16 if "bf16" in name else values.astype(np.float16).view(np.uint16)
        section.view(np.uint16)[:] = bits
    if name.endswith("_order"):
        sections[3].view(np.int32)[:] = rng.permutation(cols)
    if name.startswith("nvfp4"):
        sections[1][(sections[1] & 0x7F) == 0x7F] = 1
    if name == "fp8_row":
        sections[0][(sections[0] & 0x7F) == 0x7F] = 1
    if not name.startswith("q4"):
        sections[-1].view(np.float32)[:] = rng.uniform(0.001, 0.002, rows)
    return Weight(form, rows, cols, data)


@pytest.mark.parametrize("simd", LEVELS)
@pytest.mark.parametrize("name", KEPT)
def test_a_product_with_ones_gives_the_weights(name, simd):
    weight = some_weight(name, 19, 416)
    kernels = native.NativeKernels(1, simd)
    # what is added to each weight of a group, or taken away, is a second rounding
    found = np.ascontiguousarray(kernels.matmul(weight, np.eye(416, dtype=np.float32)).T)
    if name.endswith("_biases") or name in MINIMA:
        np.testing.assert_allclose(found, decode(weight), rtol=0, atol=3e-7 * np.abs(decode(weight)).max())
    else:
        assert_same_bits(found, decode(weight) + np.float32(0))


@pytest.mark.parametrize("simd", LEVELS)
@pytest.mark.parametrize("name", KEPT)
def test_neither_tokens_nor_threads_show_in_a_product(name, simd):
    weight, x = some_weight(name, 150, 1056), normal(2, 32, 1056)
    whole = native.NativeKernels(1, simd).matmul(weight, x)
    assert_same_bits(native.NativeKernels(2, simd).matmul(weight, x), whole)
    one = native.NativeKernels(2, simd)
    assert_same_bits(np.concatenate([one.matmul(weight, x[t : t + 1]) for t in range(8)]), whole[:8])
    assert_same_bits(native.NativeKernels(1, simd).matmul(weight, x[:7]), whole[:7])
    expected = NumpyKernels().matmul(weight, x)
    np.testing.assert_allclose(whole, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("simd", LEVELS)
@pytest.mark.parametrize("name", KEPT)
def test_products_by_heads_and_with_the_transpose_are_those_of_numpy(name, simd):
    weight = some_weight(name, 4 * 48, 288)
    kernels, numpy = native.NativeKernels(2, simd), NumpyKernels()
    for transposed, width in ((False, 288), (True, 40)):
        x = normal(3, 3, 4, width)
        got, expected = (
            k.matmul_heads(weight, x, offset=8, rows=40, transposed=transposed) for k in (kernels, numpy)
        )
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", KEPT)
def test_an_activation_that_is_no_number_makes_its_token_none_and_no_other(name):
    weight, x = some_weight(name, 20, 512), normal(4, 3, 512)
    x[1, 77] = np.inf
    y = native.NativeKernels(1).matmul(weight, x)
    assert np.isfinite(y[[0, 2]]).all()
    assert not np.isfinite(y[1]).any()
