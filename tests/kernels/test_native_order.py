"""Law 1 at its root: neither the tokens in a call nor the number of threads show in a single bit."""

import numpy as np
import pytest
from arrays import assert_same_bits, normal, packed

from uringinfer.kernels.formats import ENCODED, encode, weight_format

TOKENS = 70


def pieces(total, sizes):
    """Ranges of sizes[0], sizes[1], ..., again and again, that cover `total`."""
    start, turn = 0, 0
    while start < total:
        stop = min(total, start + sizes[turn % len(sizes)])
        yield slice(start, stop)
        start, turn = stop, turn + 1


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("shape", [(1, 1), (7, 129), (50, 515), (130, 1100), (21, 4200)])
def test_a_product_has_the_same_bits_however_its_tokens_are_cut(native, name, shape):
    weight, x = packed(name, normal(0, *shape)), normal(1, TOKENS, shape[1])
    whole = native(1).matmul(weight, x)
    for sizes in ([1], [2], [3], [4], [5], [6], [13], [64], [1, 7, 2, 33]):
        parts = [native(2).matmul(weight, x[piece]) for piece in pieces(TOKENS, sizes)]
        assert_same_bits(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_a_product_has_the_same_bits_on_any_number_of_threads(native, name, tokens):
    weight, x = packed(name, normal(0, 333, 777)), normal(1, tokens, 777)
    alone = native(1).matmul(weight, x)
    for threads in (2, 3, 5):
        assert_same_bits(native(threads).matmul(weight, x), alone)


@pytest.mark.parametrize("name", ENCODED)
def test_a_panel_of_rows_has_the_bits_of_those_rows_in_the_whole(native, name):
    form = weight_format(name)
    matrix, x = normal(0, 300, 200), normal(1, 9, 200)
    cut = max(form.row_granularity, 37 // form.row_granularity * form.row_granularity)
    weight = packed(name, matrix)
    whole = native(2).matmul(weight, x)
    for rows in (slice(0, cut), slice(cut, 300)):
        panel = encode(name, matrix[rows], weight.format.codebook)
        assert_same_bits(native(2).matmul(panel, x), np.ascontiguousarray(whole[:, rows]))


@pytest.mark.parametrize("cols", [5, 64, 1000])
def test_norms_and_gates_have_the_same_bits_however_their_rows_are_cut(native, cols):
    x, up, weight = normal(0, TOKENS, cols), normal(1, TOKENS, cols), normal(2, cols)
    functions = [lambda k, rows: k.rms_norm(x[rows], weight, 1e-5)]
    for kind in ("silu", "gelu_tanh", "swiglu_oai", "situ"):
        functions.append(lambda k, rows, kind=kind: k.gated(kind, x[rows], up[rows], limit=7.0, alpha=1.7))
    for function in functions:
        whole = function(native(1), slice(None))
        for sizes, threads in (([1], 1), ([3, 8], 2), ([TOKENS], 3)):
            assert_same_bits(
                np.concatenate([function(native(threads), piece) for piece in pieces(TOKENS, sizes)]), whole
            )


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("half", [3, 32])
def test_rotation_has_the_same_bits_however_its_tokens_are_cut(native, half, interleaved):
    x, cos, sin = normal(0, 300, 40, 70), normal(1, 300, half), normal(2, 300, half)
    whole = x.copy()
    native(2).rotary(whole, cos, sin, interleaved=interleaved)
    for t in range(300):
        native(1).rotary(x[t : t + 1], cos[t : t + 1], sin[t : t + 1], interleaved=interleaved)
    assert_same_bits(x, whole)


@pytest.mark.parametrize("window", [0, 1, 50, 100])
@pytest.mark.parametrize(("heads", "groups", "size", "value_size"), [(4, 4, 64, 64), (20, 2, 33, 70)])
def test_attention_has_the_same_bits_however_its_tokens_are_cut(
    native, window, heads, groups, size, value_size
):
    start, capacity = 60, 200
    q, sinks = normal(0, TOKENS, heads, size), normal(1, heads)
    keys, values = normal(2, groups, capacity, size), normal(3, groups, capacity, value_size)

    def attend(threads, piece):
        return native(threads).attention(
            q[piece], keys, values, start + piece.start, 0.1, window=window, sinks=sinks
        )

    whole = attend(1, slice(0, TOKENS))
    for sizes, threads in (([1], 1), ([7, 2], 2), ([TOKENS], 3)):
        assert_same_bits(np.concatenate([attend(threads, piece) for piece in pieces(TOKENS, sizes)]), whole)


def test_attention_does_not_depend_on_the_capacity_of_the_cache(native):
    q, keys, values = normal(0, 2, 4, 32), normal(1, 2, 150, 32), normal(2, 2, 150, 32)
    wide = native(1).attention(q, keys, values, 98, 0.2)
    narrow = native(1).attention(q, keys[:, :100].copy(), values[:, :100].copy(), 98, 0.2)
    assert_same_bits(wide, narrow)


@pytest.mark.parametrize("nbytes", [0, 255, 256, (1 << 20) + 512 + 8])
def test_the_yardstick_reads_every_whole_step(native, nbytes):
    from uringinfer.kernels.native_kernels import read_memory

    data = np.random.default_rng(0).integers(0, 256, nbytes, dtype=np.uint8)
    expected = int(data[: nbytes // 256 * 256].view(np.uint64).sum(dtype=np.uint64))
    assert read_memory(data, threads=2) == expected
