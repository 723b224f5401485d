"""What kernels announce that they take beside their arguments, against what is seen: numpy's by tracemalloc,
the native kernels' by the kernel's count of resident pages. Every format there is comes through here."""

import tracemalloc
import warnings

import numpy as np
import pytest
from arrays import normal, some_codebook
from peak_memory import COUNTED_LATE, peak_bytes

from uringinfer.kernels import open_kernels
from uringinfer.kernels.formats import FORMATS, Weight, weight_format
from uringinfer.kernels.gated_network import GatedNetwork
from uringinfer.kernels.numpy_kernels import NumpyKernels

SIZES = {"native": (48, 8192), "numpy": (16, 2048)}
"""Rows and columns: what the native kernels take must be more than the kernel's count is off."""
MANY = 300
HEADS, HEAD_ROWS = 6, 8


@pytest.fixture(scope="module", params=["numpy", "native"])
def kernels(request):
    """What a run takes on this machine; levels of SIMD differ in their instructions, not in their memory."""
    return NumpyKernels() if request.param == "numpy" else request.getfixturevalue("best_native")


@pytest.fixture(scope="module")
def best_native():
    kernels = open_kernels(threads=2)
    if kernels.name != "native":
        pytest.skip("the native kernels are not there")
    return kernels


def some_weight(name, rows, cols):
    """A weight of zeros, which every format decodes; what it is worth does not matter here."""
    form = weight_format(name)
    data = np.zeros(form.nbytes(rows, cols), np.uint8)
    return Weight(form.bind(some_codebook()) if form.bind else form, rows, cols, data)


def taken(kernels, call):
    """Bytes that `call` takes at most, its result included."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        if kernels.name == "native":
            return peak_bytes(call) - COUNTED_LATE
        tracemalloc.start()
        try:
            call()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def multiply_once(kernels, name):
    """What is made at a first product and kept is no scratch. Skips formats that these kernels lack."""
    weight = some_weight(name, 16, 512)
    with np.errstate(all="ignore"):
        try:
            kernels.matmul(weight, normal(1, 2, 512))
        except KeyError:
            pytest.skip(f"{kernels.name} kernels do not multiply {name}")


def product(kernels, name, tokens):
    """A product that allocates nothing but what it announces: (bytes taken, bytes announced)."""
    rows, cols = SIZES[kernels.name]
    weight, x = some_weight(name, rows, cols), normal(1, tokens, cols)
    out = np.zeros((tokens, rows), np.float32)
    multiply_once(kernels, name)
    found = taken(kernels, lambda: kernels.matmul(weight, x, out))
    return found, kernels.product_bytes(weight_format(name), rows, cols, tokens)


@pytest.mark.parametrize("tokens", [1, MANY])
@pytest.mark.parametrize("name", FORMATS)
def test_a_product_takes_no_more_than_it_announces(kernels, name, tokens):
    found, announced = product(kernels, name, tokens)

    assert found <= announced


@pytest.mark.parametrize("name", ["bf16", "q4", "vq3"])
def test_and_what_native_kernels_announce_for_many_tokens_is_not_far_more(best_native, name):
    found, announced = product(best_native, name, MANY)

    assert announced <= 2.5 * (found + COUNTED_LATE)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", ["bf16", "q4"])
def test_a_product_by_heads_takes_no_more_than_it_announces(kernels, name, transposed):
    tokens, cols = 400, 2048
    weight = some_weight(name, HEADS * HEAD_ROWS, cols)
    x = normal(1, tokens, HEADS, HEAD_ROWS if transposed else cols)
    result = 4 * tokens * HEADS * (cols if transposed else HEAD_ROWS)

    def call():
        kernels.matmul_heads(weight, x, offset=0, rows=HEAD_ROWS, transposed=transposed)

    announced = kernels.product_bytes(weight_format(name), HEADS * HEAD_ROWS, cols, tokens, by_heads=True)
    taken(kernels, call)  # the threads touch their stacks for the first time
    assert taken(kernels, call) <= result + announced


def attention(kernels):
    q, keys, values = normal(0, 128, 8, 64), normal(1, 2, 4096, 64), normal(2, 2, 4096, 64)
    return (q, keys, values), lambda: kernels.attention(q, keys, values, 3968, 0.1)


def latent(kernels):
    q, cache = normal(0, 128, 4, 96), normal(1, 4096, 96)
    return (q, cache), lambda: kernels.latent_attention(q, cache, 64, 3968, 0.1)


def norm(kernels):
    x = normal(0, 500, 4096)
    return (x, x), lambda: kernels.rms_norm(x, x[0], 1e-5)


def gated(kernels):
    x = normal(0, 500, 4096)
    return (x, x, x), lambda: kernels.gated("situ", x, x, limit=3.0, alpha=2.0)


def rotated(kernels):
    x, turns = normal(0, 500, 16, 128), normal(1, 500, 64)
    return (x,), lambda: kernels.rotary(x, turns, turns)


def convolved(kernels):
    x, history, taps = normal(0, 500, 4096), normal(1, 3, 4096), normal(2, 4096, 4)
    return (x, x), lambda: kernels.causal_conv(x, history, taps)


def residual(kernels):
    sources = [normal(n, 200, 2048) for n in range(4)]
    return (*sources, sources[0]), lambda: kernels.attention_residual(sources, normal(9, 2048), 1e-5)


@pytest.mark.parametrize("function", [attention, latent, norm, gated, rotated, convolved, residual])
def test_a_function_takes_no_more_than_it_announces(kernels, function):
    arrays, call = function(kernels)
    nbytes = sum(array.nbytes for array in arrays)

    assert taken(kernels, call) <= nbytes + kernels.function_bytes(nbytes)


@pytest.mark.parametrize("name", ["bf16", "q4", "vq3"])
def test_networks_of_many_tokens_take_no_more_than_their_products(kernels, name):
    inner, hidden = 64, 1536
    shapes = ((inner, hidden), (inner, hidden), (hidden, inner))
    weights = [some_weight(name, *shape) for shape in shapes]
    network = GatedNetwork(*weights)
    x = normal(0, MANY, hidden)

    def call():
        kernels.gated_networks([network], [x], "silu")

    taken(kernels, call)  # the threads touch their stacks for the first time
    products = sum(
        kernels.product_bytes(weight.format, *shape, MANY)
        for weight, shape in zip(weights, shapes, strict=True)
    )
    beside = 4 * MANY * (3 * inner + hidden)
    assert taken(kernels, call) <= products + beside + kernels.function_bytes(3 * 4 * MANY * inner)
