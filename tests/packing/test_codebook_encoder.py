import threading

import numpy as np
import pytest

from uringinfer.kernels.codebooks import SAMPLE_VECTORS, fit_codebook
from uringinfer.kernels.formats import Weight, decode, weight_format
from uringinfer.packing.codebook_encoder import STRETCHES, CodebookEncoder


class Matrices:
    """`count` Gaussian matrices; remembers which rows were asked for."""

    def __init__(self, count, rows, cols):
        self.shape = (count, rows, cols)
        self.values = np.random.default_rng(0).standard_normal((count, rows, cols), np.float32)
        self.asked = []

    def rows_of(self, matrix, start, stop):
        self.asked.append((matrix, start, stop))
        return self.values[matrix, start:stop]

    def encoder(self, name="kind", form="vq3"):
        return CodebookEncoder(weight_format(form), name, self.rows_of, *self.shape)


def test_few_rows_are_all_learned_from():
    matrices = Matrices(5, 30, 24)
    matrices.encoder().codebook()
    assert matrices.asked == [(matrix, 0, 30) for matrix in range(5)]


@pytest.mark.parametrize("shape", [(1, 4000, 256), (40, 500, 64), (3000, 7, 48)])
def test_of_many_rows_stretches_from_all_over_are_learned_from(shape, monkeypatch):
    matrices, sizes = Matrices(*shape), []
    monkeypatch.setattr(
        "uringinfer.packing.codebook_encoder.fit_codebook",
        lambda vectors, seed: sizes.append(len(vectors)) or fit_codebook(vectors[:300], seed),
    )
    matrices.encoder().codebook()
    count, rows, _ = shape
    assert SAMPLE_VECTORS <= sizes[0] < 1.3 * SAMPLE_VECTORS
    assert len(matrices.asked) >= STRETCHES
    assert all(0 <= start < stop <= rows for _, start, stop in matrices.asked)
    places = [(matrix * rows + start) / (count * rows) for matrix, start, _ in matrices.asked]
    assert np.histogram(places, 8, (0, 1))[0].min() >= len(places) // 8 - 1


def test_a_codebook_is_fitted_once_whatever_thread_needs_it_first():
    matrices, found = Matrices(2, 50, 32), []
    encoder = matrices.encoder()
    threads = [threading.Thread(target=lambda: found.append(encoder.codebook())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(matrices.asked) == 2
    assert all(codebook is found[0] for codebook in found)


def test_the_same_kind_learns_the_same_again_and_another_kind_otherwise():
    matrices = Matrices(2, 200, 64)
    one, again, other = (matrices.encoder(name).codebook() for name in ("a", "a", "b"))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_what_it_decodes_is_what_the_format_decodes():
    matrices = Matrices(1, 140, 36)
    encoder = matrices.encoder(form="vq3")
    rows = matrices.values[0]
    sections = [np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in encoder.encode(rows)]
    form = encoder.form.bound_to(encoder.codebook())
    weight = Weight(form, 140, 36, form.join(140, 36, sections))
    np.testing.assert_array_equal(encoder.decode(sections, 140, 36), decode(weight))
    assert np.linalg.norm(decode(weight) - rows) < 0.2 * np.linalg.norm(rows)
