"""Gates, recurrent states and latent attention, in every implementation, against float64 loops."""

import numpy as np
import pytest
import recurrent_oracle as oracle
from arrays import normal

from uringinfer.kernels.formats import decode, encode


def uniform(seed, *shape):
    return np.random.default_rng(seed).random(shape, np.float32)


def assert_close(got, expected, tolerance=2e-6):
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5, 33), (2, 1000)])
def test_sigmoid_is_right_from_end_to_end(kernels, shape):
    x = 20 * normal(0, *shape)
    np.testing.assert_allclose(kernels.sigmoid(x), oracle.sigmoid(x), rtol=3e-6)
    ends = np.array([-1000, -88, 0, 88, 1000, -np.inf, np.inf], np.float32)
    np.testing.assert_allclose(kernels.sigmoid(ends), oracle.sigmoid(ends), rtol=3e-6, atol=1e-37)


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 896), (5, 4, 17)])
def test_softmax_sums_to_one_however_large_the_logits(kernels, shape):
    x = 300 * normal(1, *shape)
    assert_close(kernels.softmax(x), oracle.softmax(x), 1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 16), (2, 4, 128), (1, 3, 50)])
def test_l2_norm_divides_by_the_root_of_the_sum_not_of_the_mean(kernels, shape):
    x = 0.01 * normal(2, *shape)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True) + 1e-3) * 0.25
    assert_close(kernels.l2_norm(x, 1e-3, 0.25), expected)


@pytest.mark.parametrize(("tokens", "channels", "count"), [(1, 80, 4), (5, 33, 4), (2, 16, 4), (9, 7, 2)])
def test_the_convolution_meets_its_history_and_moves_it_on(kernels, tokens, channels, count):
    x, taps = normal(3, tokens, channels), normal(5, channels, count)
    history = normal(4, count - 1, channels)
    expected, moved = oracle.causal_conv(x, history, taps)
    assert_close(kernels.causal_conv(x, history, taps), expected)
    np.testing.assert_array_equal(history, moved.astype(np.float32))


@pytest.mark.parametrize("lower_bound", [None, -5.0])
@pytest.mark.parametrize(("tokens", "heads", "size"), [(1, 1, 1), (3, 5, 16), (2, 3, 37)])
def test_the_forget_gate_has_both_forms(kernels, lower_bound, tokens, heads, size):
    z, bias, rate = 8 * normal(6, tokens, heads, size), normal(7, heads, size), 4 * uniform(8, heads)
    expected = oracle.forget_gate(z, bias, rate, lower_bound)
    np.testing.assert_allclose(
        kernels.forget_gate(z, bias, rate, lower_bound), expected, rtol=1e-5, atol=1e-30
    )


def delta_inputs(tokens, heads, keys, values):
    q, k = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in normal(9, 2, tokens, heads, keys))
    v, beta = normal(10, tokens, heads, values), uniform(11, tokens, heads)
    decay = uniform(12, tokens, heads, keys)
    return q, k, v, beta, decay, normal(13, heads, keys, values)


@pytest.mark.parametrize(
    ("tokens", "heads", "keys", "values"),
    [(1, 1, 1, 1), (7, 5, 16, 16), (3, 2, 128, 128), (4, 3, 20, 37), (2, 1, 7, 200)],
)
def test_the_delta_rule_reads_the_state_that_it_has_corrected(kernels, tokens, heads, keys, values):
    *inputs, state = delta_inputs(tokens, heads, keys, values)
    expected, corrected = oracle.delta_rule(*inputs, state)
    assert_close(kernels.delta_rule(*inputs, state), expected, 4e-6)
    assert_close(state, corrected, 4e-6)


@pytest.mark.parametrize("start", [0, 1, 70, 300])
@pytest.mark.parametrize(
    ("tokens", "heads", "rank", "rope"), [(1, 4, 40, 12), (5, 1, 16, 0), (33, 3, 512, 64)]
)
def test_latent_attention_sees_itself_and_what_came_before(kernels, start, tokens, heads, rank, rope):
    q, cache = normal(14, tokens, heads, rank + rope), normal(15, start + tokens + 3, rank + rope)
    expected = oracle.latent_attention(q, cache, rank, start, 0.2)
    assert_close(kernels.latent_attention(q, cache, rank, start, 0.2), expected, 1e-5)


@pytest.mark.parametrize("name", ["bf16", "f32"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("offset", "rows"), [(0, 20), (20, 26), (45, 1)])
@pytest.mark.parametrize("tokens", [1, 6])
def test_each_head_has_its_own_block_of_rows(kernels, name, transposed, offset, rows, tokens):
    weight = encode(name, normal(16, 4 * 46, 40))
    x = normal(17, tokens, 4, rows if transposed else 40)
    expected = oracle.matmul_heads(decode(weight), x, offset, rows, transposed)
    assert_close(kernels.matmul_heads(weight, x, offset=offset, rows=rows, transposed=transposed), expected)


@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize(("tokens", "width"), [(1, 96), (4, 7), (3, 300)])
def test_the_residual_scores_normed_sources_and_mixes_raw_ones(kernels, count, tokens, width):
    sources = [(number + 1) * normal(18 + number, tokens, width) for number in range(count)]
    query = normal(40, width)
    expected = oracle.attention_residual(sources, query, 1e-3)
    assert_close(kernels.attention_residual(sources, query, 1e-3), expected, 1e-5)


@pytest.mark.parametrize("cut", [1, 3, 6])
def test_recurrent_functions_carry_their_state_over_a_cut_bit_for_bit(kernels, cut):
    *inputs, state = delta_inputs(7, 3, 16, 20)
    again = state.copy()
    whole = kernels.delta_rule(*inputs, state)
    parts = [
        kernels.delta_rule(*(np.ascontiguousarray(a[piece]) for a in inputs), again)
        for piece in (slice(0, cut), slice(cut, 7))
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(again, state)

    x, taps = normal(3, 7, 37), normal(5, 37, 4)
    history, moved = np.zeros((2, 3, 37), np.float32)
    whole = kernels.causal_conv(x, history, taps)
    parts = [kernels.causal_conv(x[:cut], moved, taps), kernels.causal_conv(x[cut:], moved, taps)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(moved, history)


def test_arrays_that_do_not_meet_are_refused_before_memory_is_touched(kernels):
    *inputs, state = delta_inputs(2, 3, 4, 5)
    with pytest.raises(ValueError, match="do not meet a state"):
        kernels.delta_rule(*inputs, np.zeros((3, 5, 4), np.float32))
    with pytest.raises(ValueError, match="contiguous float32"):
        kernels.delta_rule(*inputs, np.asfortranarray(state))
    with pytest.raises(ValueError, match="at most 16 taps, not 17"):
        kernels.causal_conv(normal(0, 2, 8), normal(1, 16, 8), normal(2, 8, 17))
    with pytest.raises(ValueError, match="do not meet taps"):
        kernels.causal_conv(normal(0, 2, 8), normal(1, 2, 8), normal(2, 8, 4))
    with pytest.raises(ValueError, match="does not meet bias"):
        kernels.forget_gate(normal(0, 1, 2, 3), normal(1, 3, 2), normal(2, 3), None)
    with pytest.raises(ValueError, match="do not fit a cache of 4"):
        kernels.latent_attention(normal(0, 3, 1, 8), normal(1, 4, 8), 8, 2, 1.0)
    with pytest.raises(ValueError, match="does not meet rows 3 to 6"):
        kernels.matmul_heads(
            encode("f32", normal(0, 10, 4)), normal(1, 1, 2, 4), offset=3, rows=3, transposed=False
        )
    with pytest.raises(ValueError, match="at least one source"):
        kernels.attention_residual([], normal(0, 4), 1e-5)
