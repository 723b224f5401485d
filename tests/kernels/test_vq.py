"""Vector quantisation: the layout against a description of it, the search, the codebooks, the products."""

import struct

import numpy as np
import pytest
from arrays import normal, some_codebook
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.kernels import codebooks, numpy_search, vq_search
from uringinfer.kernels.codebooks import fit_codebook, sample_vectors
from uringinfer.kernels.formats import Weight, decode, decode_rows, encode, weight_format
from uringinfer.kernels.vq_formats import row_scales

FORM = weight_format("vq3")


def described_value(stages, data, codebook, rows, cols, row, col):
    """Weight [row, col] by docs/formats.md, from bytes, one step at a time."""
    positions, first = (cols + 7) // 8, row // 128 * 128
    block_rows = min(128, rows - first)
    total = np.float32(0)
    for stage in range(stages):
        at = first * positions * stages + (col // 8 * stages + stage) * block_rows + row - first
        total = np.float32(total + np.float32(codebook[stage][data[at]][col % 8]))
    scales = -(-rows * positions * stages // 64) * 64
    return np.float32(total * np.float32(struct.unpack_from("<e", data, scales + 2 * row)[0]))


@given(rows=st.integers(1, 300), cols=st.integers(1, 90), seed=st.integers(0, 1 << 30))
@settings(max_examples=10, deadline=None)
def test_any_indices_decode_to_the_values_of_the_description(rows, cols, seed):
    rng = np.random.default_rng(seed)
    codebook = some_codebook(seed=seed)
    data = rng.integers(0, 256, FORM.nbytes(rows, cols), dtype=np.uint8)
    FORM.split(data, rows, cols)[1][:] = rng.uniform(-4, 4, rows).astype(np.float16).view(np.uint8)
    weight = Weight(FORM.bound_to(codebook), rows, cols, data)
    got = decode(weight)
    for row, col in zip(rng.integers(0, rows, 40), rng.integers(0, cols, 40), strict=True):
        expected = described_value(3, data.tobytes(), codebook, rows, cols, int(row), int(col))
        assert got[row, col] == expected
    ids = rng.integers(0, rows, 7)
    np.testing.assert_array_equal(decode_rows(weight, ids), got[ids])


@given(rows=st.integers(1, 140), cols=st.integers(1, 40), seed=st.integers(0, 1 << 30))
@settings(max_examples=8, deadline=None)
def test_the_four_nearest_sums_go_on_from_each_stage_and_the_nearest_from_the_last(rows, cols, seed):
    codebook = some_codebook(seed=seed)
    matrix = normal(seed + 1, rows, cols)
    weight = encode("vq3", matrix, codebook)
    scales = np.abs(matrix).max(axis=1).astype(np.float16).astype(np.float64)
    vectors = np.pad(matrix / scales[:, None], ((0, 0), (0, -cols % 8))).reshape(-1, 1, 8)
    sums = np.zeros_like(vectors)
    for centroids in codebook.astype(np.float64):
        longer = (sums[:, :, None] + centroids).reshape(len(vectors), -1, 8)
        order = ((vectors - longer) ** 2).sum(axis=2).argsort(axis=1)
        sums = np.take_along_axis(longer, order[:, :4, None], axis=1)
    left = (vectors - sums)[:, 0]
    off = np.linalg.norm(left.reshape(rows, -1)[:, :cols] * scales[:, None])
    assert np.linalg.norm(decode(weight) - matrix) == pytest.approx(off, rel=1e-3)


@pytest.mark.parametrize("begin", range(4))
def test_an_exact_sum_is_found_that_begins_with_the_fourth_nearest_centroid(begin):
    codebook = np.zeros((2, 256, 8), np.float32)
    codebook[0, :4, 2] = 9, 8, 7, 6
    codebook[1, 77, 2] = 1 + begin
    vectors = np.zeros((1, 8), np.float32)
    vectors[0, 2] = 10
    assert vq_search.best_sums(vectors, codebook).tolist() == [[begin], [77]]


@given(
    rows=st.integers(1, 300), cols=st.integers(1, 40), stages=st.integers(1, 3), seed=st.integers(0, 1 << 30)
)
@settings(max_examples=8, deadline=None)
def test_the_native_search_finds_what_numpy_finds_at_every_level_also_among_equals(
    native, rows, cols, stages, seed
):
    from uringinfer.kernels import native_search

    level, codebook = native(1)._level, some_codebook(stages, seed)
    codebook[:, 1::2] = codebook[:, ::2]
    matrix = normal(seed, rows, cols)
    matrix[rows // 2] = 0
    scales = row_scales(matrix)
    expected = numpy_search.encode_indices(matrix, scales, codebook)
    for threads in (1, 3):
        found = native_search.encode_indices(matrix, scales, codebook, level, threads)
        np.testing.assert_array_equal(found, expected)
    vectors = normal(seed, rows, 8)
    np.testing.assert_array_equal(
        native_search.best_sums(vectors, codebook, level), numpy_search.best_sums(vectors, codebook)
    )


def test_a_row_whose_length_is_no_multiple_of_8_is_held_as_if_zeros_followed():
    matrix, codebook = normal(0, 130, 203), some_codebook()
    padded = np.pad(matrix, ((0, 0), (0, 5)))
    short, long = encode("vq3", matrix, codebook), encode("vq3", padded, codebook)
    np.testing.assert_array_equal(short.data, long.data)
    np.testing.assert_array_equal(decode(short), decode(long)[:, :203])


def test_a_panel_has_the_bytes_of_its_blocks_in_the_whole():
    matrix, codebook = normal(0, 300, 40), some_codebook()
    whole = FORM.split(encode("vq3", matrix, codebook).data, 300, 40)
    panel = FORM.split(encode("vq3", matrix[128:], codebook).data, 172, 40)
    for all_rows, some in zip(whole, panel, strict=True):
        np.testing.assert_array_equal(all_rows[-some.size :], some)


def test_the_error_on_gaussian_weights_that_were_not_fitted_to_is_near_the_documented_one():
    seen, unseen = normal(0, 128, 1024), normal(1, 64, 1024)
    weight = encode("vq3", unseen, fit_codebook(sample_vectors(seen)))
    error = np.linalg.norm(decode(weight) - unseen) / np.linalg.norm(unseen)
    assert 0.16 < error < 0.177


def test_zeros_and_tiny_and_huge_rows_survive():
    matrix = normal(0, 40, 64) * np.float32(10) ** np.arange(-6, 4).repeat(4)[:, None].astype(np.float32)
    matrix[5] = 0
    weight = encode("vq3", matrix)
    off = np.linalg.norm(decode(weight) - matrix, axis=1)
    assert off[5] == 0
    assert (off <= 0.6 * np.linalg.norm(matrix, axis=1)).all()
    assert (decode(encode("vq3", np.zeros((3, 20), np.float32))) == 0).all()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_infinities_and_nans_are_refused(bad):
    matrix = normal(0, 4, 64)
    matrix[2, 3] = bad
    with pytest.raises(ValueError, match=r"vq cannot hold the infinities or NaNs of this matrix \(4, 64\)"):
        encode("vq3", matrix, some_codebook())


@pytest.mark.parametrize("codebook", [some_codebook(2), some_codebook().astype(np.float64)])
def test_what_is_no_codebook_of_the_format_is_refused(codebook):
    with pytest.raises(ValueError, match=r"vq3 needs a codebook, float32 \[3, 256, 8\]"):
        FORM.bound_to(codebook)


def test_a_matrix_without_a_codebook_is_refused(kernels):
    whole = encode("vq3", normal(0, 9, 16), some_codebook())
    weight = Weight(FORM, 9, 16, whole.data)
    for use in (lambda: decode(weight), lambda: kernels.matmul(weight, normal(1, 1, 16))):
        with pytest.raises(ValueError, match="vq3 needs a codebook"):
            use()


def test_two_hundred_vectors_are_learned_by_heart():
    vectors = normal(0, 200, 8).astype(np.float16).astype(np.float32)
    many = vectors[np.random.default_rng(1).integers(0, 200, 5000) ** 2 % 200]
    chosen, codebook = codebooks.nearest, fit_codebook(many)
    np.testing.assert_array_equal(codebook[0][chosen(many, codebook[0])], many)


def test_fitting_the_stages_together_serves_the_sample_better(monkeypatch):
    vectors = normal(0, 8192, 8)

    def error():
        codebook = fit_codebook(vectors)
        chosen = vq_search.best_sums(vectors, codebook)
        return np.linalg.norm(vectors - sum(c[found] for c, found in zip(codebook, chosen, strict=True)))

    together = error()
    monkeypatch.setattr(codebooks, "JOINT_ROUNDS", 0)
    assert together < 0.98 * error()


def test_a_codebook_depends_on_sample_and_seed_alone(monkeypatch):
    vectors = sample_vectors(normal(0, 64, 256))
    fitted = fit_codebook(vectors, seed=3)
    np.testing.assert_array_equal(fit_codebook(vectors, seed=3), fitted)
    assert not np.array_equal(fit_codebook(vectors, seed=4), fitted)
    monkeypatch.setenv("URINGINFER_NATIVE", "0")
    np.testing.assert_array_equal(fit_codebook(vectors, seed=3), fitted)
    assert fitted.astype(np.float16).astype(np.float32).tobytes() == fitted.tobytes()


def test_a_large_sample_is_thinned_out_to_a_bounded_one(monkeypatch):
    monkeypatch.setattr(codebooks, "SAMPLE_VECTORS", 300)
    seen = []
    monkeypatch.setattr(codebooks, "nearest", lambda v, c: seen.append(len(v)) or vq_search.nearest(v, c))
    fit_codebook(normal(0, 1000, 8))
    assert set(seen) == {300}


@pytest.mark.parametrize("tokens", [1, 5])
def test_tables_made_once_serve_every_weight_of_their_codebook(kernels, tokens):
    codebook, x = some_codebook(), normal(0, tokens, 600)
    first, second = (encode("vq3", normal(seed, 140, 600), codebook) for seed in (1, 2))
    tables = kernels.tables(first, x)
    for weight in (first, second):
        np.testing.assert_array_equal(kernels.matmul(weight, x, tables=tables), kernels.matmul(weight, x))


def test_tables_of_another_codebook_or_number_of_tokens_are_refused(native):
    kernels, x = native(1), normal(0, 2, 64)
    one, other = (encode("vq3", normal(1, 9, 64), some_codebook(seed=seed)) for seed in (1, 2))
    for weight, given_x in ((other, x), (one, x[:1])):
        with pytest.raises(ValueError, match="these tables are not for"):
            kernels.matmul(weight, given_x, tables=kernels.tables(one, x))


def test_other_formats_have_no_tables(kernels):
    assert kernels.tables(encode("q4", normal(0, 9, 64)), normal(1, 1, 64)) is None


def test_tables_of_more_tokens_than_fit_together_are_not_shared(native):
    kernels, weight = native(1), encode("vq3", normal(0, 9, 1000), some_codebook())
    assert kernels.tables(weight, normal(1, 2000, 1000)) is None


@pytest.mark.parametrize("cols", [512, 1500])
def test_a_product_is_that_of_the_decoded_matrix_beside_a_huge_activation(kernels, cols):
    codebook = some_codebook()
    weight, x = encode("vq3", normal(0, 140, cols), codebook), normal(1, 1, cols)
    x[0, 3] = 100
    expected = x.astype(np.float64) @ decode(weight).astype(np.float64).T
    off = np.linalg.norm(kernels.matmul(weight, x) - expected)
    assert off < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("factor", [0.0, 1e-20, 1e20])
def test_products_do_not_depend_on_the_size_of_activations(kernels, factor):
    weight, x = encode("vq3", normal(0, 140, 600), some_codebook()), normal(1, 2, 600)
    small = kernels.matmul(weight, x * np.float32(factor))
    np.testing.assert_allclose(
        small, kernels.matmul(weight, x) * np.float32(factor), rtol=1e-3, atol=1e-5 * factor
    )


def test_the_largest_sums_do_not_overflow(kernels):
    codebook = np.ones((3, 256, 8), np.float32)
    weight = encode("vq3", normal(0, 140, 512), codebook)
    got = kernels.matmul(weight, np.ones((1, 512), np.float32))
    np.testing.assert_allclose(got[0], decode(weight).sum(axis=1), rtol=1e-5)
    got = kernels.matmul(weight, -np.ones((1, 512), np.float32))
    np.testing.assert_allclose(got[0], -decode(weight).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_activation_that_is_not_finite_makes_the_products_so(kernels, bad):
    weight, x = encode("vq3", normal(0, 140, 1200), some_codebook()), normal(1, 3, 1200)
    x[1, 700] = bad
    got = kernels.matmul(weight, x)
    assert np.isfinite(got[[0, 2]]).all() and not np.isfinite(got[1]).any()


@pytest.mark.parametrize("cols", [60, 1100])
def test_many_rows_have_the_bits_that_each_block_of_them_has_alone(native, cols):
    rows, codebook = 8 * 128 + 256 + 128 + 37, some_codebook(seed=3)
    matrix, x = normal(4, rows, cols), normal(5, 3, cols)
    whole = native(1).matmul(encode("vq3", matrix, codebook), x)
    for first in range(0, rows, 128):
        block = encode("vq3", matrix[first : first + 128], codebook)
        alone = native(1).matmul(block, x)
        np.testing.assert_array_equal(whole[:, first : first + 128].view(np.uint32), alone.view(np.uint32))
