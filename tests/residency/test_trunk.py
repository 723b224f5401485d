"""The streamed trunk against a reader whose completions are scripted."""

import numpy as np
import pytest
from trunk_fakes import GARBAGE, ScriptedReader, build_trunk, write_trunk

from uringinfer.errors import IntegrityError, Interrupted, ResidencyError, UsageError
from uringinfer.residency.checker import ReadChecker
from uringinfer.storage.reader import Priority

RNG = np.random.default_rng(7)
SIZE = 40
"""Rows and columns: a float32 matrix of 6,400 bytes takes a segment of 8,192."""


@pytest.fixture
def matrices():
    return {f"layers.{n}.w": RNG.standard_normal((SIZE, SIZE), np.float32) for n in range(6)}


@pytest.fixture
def stored(tmp_path, matrices):
    return write_trunk(tmp_path, [[item] for item in matrices.items()])


def run_pass(trunk, matrices, x):
    """Multiplies through every matrix in order -> all the products."""
    with trunk.begin() as weights:
        return [weights.matmul(name, x) for name in matrices]


def expected(matrices, x):
    return [x @ matrix.T for matrix in matrices.values()]


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("pinned", [(), (0, 3), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5)])
@pytest.mark.parametrize("eager", [False, True])
def test_every_pass_gives_the_same_products_whatever_is_pinned(stored, matrices, slots, pinned, eager):
    trunk = build_trunk(*stored, ScriptedReader(eager=eager), pinned=pinned, slots=slots, poison=True)
    x = RNG.standard_normal((3, SIZE), np.float32)
    for _ in range(4):
        for got, want in zip(run_pass(trunk, matrices, x), expected(matrices, x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_reads_of_the_next_pass_are_in_flight_before_this_one_ends(stored, matrices):
    segments, file = stored
    reader = ScriptedReader()
    trunk = build_trunk(segments, file, reader, slots=2)
    x = np.ones((1, SIZE), np.float32)
    with trunk.begin() as weights:
        for name in list(matrices)[:-1]:
            weights.matmul(name, x)
        assert reader.in_flight == [segments[5].offset, segments[0].offset]
        weights.matmul("layers.5.w", x)
        assert reader.in_flight == [segments[0].offset, segments[1].offset]


def test_a_slot_is_read_into_again_only_after_its_lease_is_over(stored, matrices):
    segments, file = stored
    reader = ScriptedReader()
    trunk = build_trunk(segments, file, reader, slots=2)
    x = np.ones((1, SIZE), np.float32)
    with trunk.begin() as weights:
        with weights.weight("layers.0.w") as weight:
            assert reader.in_flight == [segments[1].offset]
            np.testing.assert_array_equal(weight.data.view(np.float32), matrices["layers.0.w"].reshape(-1))
        assert reader.in_flight == [segments[1].offset, segments[2].offset]
        for name in list(matrices)[1:]:
            weights.matmul(name, x)


def test_one_slot_reads_only_when_it_is_asked_and_says_so(stored, matrices):
    segments, file = stored
    reader = ScriptedReader()
    trunk = build_trunk(segments, file, reader, slots=1)
    assert not trunk.overlaps
    with trunk.begin() as weights:
        for name, segment in zip(matrices, segments, strict=True):
            assert reader.in_flight == []
            weights.matmul(name, np.ones((1, SIZE), np.float32))
            assert reader.events[-2:] == [("submit", segment.offset), ("wait", segment.offset)]


def test_asking_out_of_turn_names_both_tensors(stored):
    trunk = build_trunk(*stored, ScriptedReader())
    with (
        pytest.raises(
            ResidencyError, match=r"'layers\.2\.w' was asked for out of turn: 'layers\.1\.w' is next"
        ),
        trunk.begin() as weights,
    ):
        weights.matmul("layers.0.w", np.ones((1, SIZE), np.float32))
        weights.matmul("layers.2.w", np.ones((1, SIZE), np.float32))


def test_a_pass_that_leaves_a_tensor_out_is_an_error_that_names_it(stored):
    trunk = build_trunk(*stored, ScriptedReader())
    with pytest.raises(ResidencyError, match=r"'layers\.1\.w' was not used"), trunk.begin() as weights:
        weights.matmul("layers.0.w", np.ones((1, SIZE), np.float32))


def test_asking_beyond_the_end_of_the_pass_is_an_error(stored, matrices):
    trunk = build_trunk(*stored, ScriptedReader())
    x = np.ones((1, SIZE), np.float32)
    with pytest.raises(ResidencyError, match="the pass is over"), trunk.begin() as weights:
        for name in [*matrices, "layers.0.w"]:
            weights.matmul(name, x)


def test_nothing_else_can_be_asked_for_while_a_tensor_is_lent(stored):
    trunk = build_trunk(*stored, ScriptedReader())
    with (
        pytest.raises(ResidencyError, match=r"'layers\.1\.w' was asked for while 'layers\.0\.w' is lent"),
        trunk.begin() as weights,
        weights.weight("layers.0.w"),
    ):
        weights.matmul("layers.1.w", np.ones((1, SIZE), np.float32))


def test_a_pass_inside_a_pass_is_an_error(stored):
    trunk = build_trunk(*stored, ScriptedReader())
    with pytest.raises(ResidencyError, match="inside another"), trunk.begin(), trunk.begin():
        pass


@pytest.mark.parametrize("pinned", [(), (0, 1, 2)])
def test_the_pass_after_an_abandoned_one_begins_anew(stored, matrices, pinned):
    trunk = build_trunk(*stored, ScriptedReader(), pinned=pinned, poison=True)
    x = RNG.standard_normal((2, SIZE), np.float32)
    for broken_at in ("layers.0.w", "layers.2.w", "layers.4.w"):
        with pytest.raises(ZeroDivisionError), trunk.begin() as weights:
            for name in matrices:
                if name == broken_at:
                    with weights.weight(name):
                        raise ZeroDivisionError
                weights.matmul(name, x)
        for got, want in zip(run_pass(trunk, matrices, x), expected(matrices, x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pinned", [(), range(6)])
def test_a_pass_that_was_abandoned_gives_nothing_any_more(stored, pinned):
    trunk = build_trunk(*stored, ScriptedReader(), pinned=pinned)
    with pytest.raises(ZeroDivisionError), trunk.begin() as weights:
        weights.matmul("layers.0.w", np.ones((1, SIZE), np.float32))
        raise ZeroDivisionError
    with pytest.raises(ResidencyError, match="the pass is over"):
        weights.matmul("layers.1.w", np.ones((1, SIZE), np.float32))


def test_a_view_that_outlives_a_poisoned_slot_holds_no_weights(stored):
    trunk = build_trunk(*stored, ScriptedReader(), slots=1, poison=True)
    with pytest.raises(ResidencyError), trunk.begin() as weights:
        with weights.weight("layers.0.w") as weight:
            kept = weight.data
        assert np.all(kept == 0xFF)


def test_an_interrupt_is_heard_at_the_next_segment_and_can_be_taken_back(stored, matrices):
    trunk = build_trunk(*stored, ScriptedReader(), pinned=(2,))
    x = np.ones((1, SIZE), np.float32)
    used = []
    with pytest.raises(Interrupted), trunk.begin() as weights:
        for name in matrices:
            weights.matmul(name, x)
            used.append(name)
            if name == "layers.1.w":
                trunk.interrupt()
    assert used == ["layers.0.w", "layers.1.w"]
    trunk.resume()
    assert len(run_pass(trunk, matrices, x)) == len(matrices)


def test_a_failed_read_is_named_where_its_segment_is_needed(stored, matrices):
    segments, file = stored
    trunk = build_trunk(segments, file, ScriptedReader(failing={segments[3].offset}))
    x = np.ones((1, SIZE), np.float32)
    used = []
    with (
        pytest.raises(IntegrityError, match=f"reading {segments[3].offset} failed"),
        trunk.begin() as weights,
    ):
        for name in matrices:
            weights.matmul(name, x)
            used.append(name)
    assert used == ["layers.0.w", "layers.1.w", "layers.2.w"]


def test_a_failed_read_of_a_pinned_segment_stops_the_load(stored):
    segments, file = stored
    with pytest.raises(IntegrityError, match="as scripted"):
        build_trunk(segments, file, ScriptedReader(failing={segments[3].offset}), pinned=(1, 3))


def test_every_segment_is_checked_before_its_first_use(stored, matrices):
    segments, file = stored
    reader, seen = ScriptedReader(), []

    class Checker(ReadChecker):
        def confirm(self, what, request, expected, started=None):
            assert not np.all(request.destination == GARBAGE)
            super().confirm(what, request, expected, started)
            seen.append(request.offset)

    trunk = build_trunk(segments, file, reader, pinned=(1, 4), checker=Checker(reader))
    assert seen == [segments[1].offset, segments[4].offset]
    run_pass(trunk, matrices, np.ones((1, SIZE), np.float32))
    assert seen[2:] == [segments[n].offset for n in (0, 2, 3, 5)]


def test_loading_reports_every_pinned_byte(stored):
    segments, file = stored
    steps = []
    trunk = build_trunk(segments, file, ScriptedReader(), pinned=(0, 2, 5))
    trunk.load(lambda done, total: steps.append((done, total)))
    nbytes = segments[0].nbytes
    assert steps == [(nbytes, 3 * nbytes), (2 * nbytes, 3 * nbytes), (3 * nbytes, 3 * nbytes)]


def test_statistics_count_bytes_from_memory_and_from_the_drive(stored, matrices):
    segments, file = stored
    trunk = build_trunk(segments, file, ScriptedReader(), pinned=(0, 2))
    for _ in range(3):
        run_pass(trunk, matrices, np.ones((1, SIZE), np.float32))
    statistics = trunk.statistics()
    assert statistics.passes == 3
    assert statistics.pinned_bytes == 3 * 2 * segments[0].nbytes
    assert statistics.streamed_bytes == 3 * 4 * segments[0].nbytes
    assert statistics.hit_rate == pytest.approx(1 / 3)


def test_the_reader_is_polled_after_every_product(stored, matrices):
    reader = ScriptedReader()
    trunk = build_trunk(*stored, reader, pinned=range(6))
    run_pass(trunk, matrices, np.ones((1, SIZE), np.float32))
    assert reader.polls == len(matrices)


def test_panels_of_a_matrix_are_joined(tmp_path):
    matrix = RNG.standard_normal((100, 24), np.float32)
    segments, file = write_trunk(tmp_path, [[("big", matrix)]], panel_rows=32)
    assert len(segments) == 4
    trunk = build_trunk(segments, file, ScriptedReader(), pinned=(1,))
    x = RNG.standard_normal((5, 24), np.float32)
    for _ in range(2):
        with trunk.begin() as weights:
            np.testing.assert_allclose(weights.matmul("big", x), x @ matrix.T, rtol=1e-4, atol=1e-4)


def test_a_split_tensor_cannot_be_had_whole(tmp_path):
    segments, file = write_trunk(tmp_path, [[("big", np.ones((100, 24), np.float32))]], panel_rows=32)
    trunk = build_trunk(segments, file, ScriptedReader())
    with (
        pytest.raises(ResidencyError, match="split into 4 panels"),
        trunk.begin() as weights,
        weights.weight("big"),
    ):
        pass


def test_vectors_come_as_copies_in_their_own_shape(tmp_path):
    norm, taps = RNG.standard_normal(24, np.float32), RNG.standard_normal((6, 1, 4), np.float32)
    segments, file = write_trunk(tmp_path, [[("norm", norm), ("taps", taps)]])
    trunk = build_trunk(segments, file, ScriptedReader(), slots=1, poison=True)
    with trunk.begin() as weights:
        got = [weights.vector("norm"), weights.vector("taps")]
    np.testing.assert_array_equal(got[0], norm)
    np.testing.assert_array_equal(got[1], taps)


def test_a_segment_is_held_until_its_last_tensor_is_used(tmp_path):
    first = [("a", np.ones((8, 8), np.float32)), ("b", np.ones((8, 8), np.float32))]
    segments, file = write_trunk(tmp_path, [first, [("c", np.ones((8, 8), np.float32))]])
    reader = ScriptedReader()
    trunk = build_trunk(segments, file, reader)
    with trunk.begin() as weights:
        weights.matmul("a", np.ones((1, 8), np.float32))
        assert reader.in_flight == [segments[1].offset]
        weights.matmul("b", np.ones((1, 8), np.float32))
        assert reader.in_flight == [segments[1].offset, segments[0].offset]
        weights.matmul("c", np.ones((1, 8), np.float32))


def test_tensors_that_no_segment_holds_are_absent(stored):
    trunk = build_trunk(*stored, ScriptedReader())
    with pytest.raises(ResidencyError), trunk.begin() as weights:
        assert weights.has("layers.0.w")
        assert not weights.has("layers.0.bias")


class TestEmbeddingRows:
    TABLE = RNG.standard_normal((300, 50)).astype(np.float32)
    IDS = np.array([299, 0, 7, 7, 128, 255, 256, 0])

    def trunk(self, directory, reader, *, table="table", panel_rows=0, **options):
        head = [("w", np.ones((8, 8), np.float32))]
        groups = [[("table", self.TABLE)], head]
        return build_trunk(
            *write_trunk(directory, groups, panel_rows=panel_rows, table=table), reader, **options
        )

    def rows(self, trunk, ids):
        with trunk.begin() as weights:
            rows = weights.embedding("table", ids)
            weights.matmul("w", np.ones((1, 8), np.float32))
        return rows

    @pytest.mark.parametrize("pinned", [(), (0,)])
    def test_rows_are_those_of_the_table_wherever_it_lies(self, tmp_path, pinned):
        trunk = self.trunk(tmp_path, ScriptedReader(), pinned=pinned)
        np.testing.assert_array_equal(self.rows(trunk, self.IDS), self.TABLE[self.IDS])

    @pytest.mark.parametrize("pinned", [(), (0, 1), (2,)])
    def test_rows_are_found_in_every_panel(self, tmp_path, pinned):
        trunk = self.trunk(tmp_path, ScriptedReader(), panel_rows=128, pinned=pinned)
        np.testing.assert_array_equal(self.rows(trunk, self.IDS), self.TABLE[self.IDS])

    def test_a_head_serves_as_a_table(self, tmp_path):
        reader = ScriptedReader()
        trunk = self.trunk(tmp_path, reader, table="", panel_rows=128)
        with trunk.begin() as weights:
            rows = weights.embedding("table", self.IDS)
            weights.matmul("table", np.ones((1, 50), np.float32))
            weights.matmul("w", np.ones((1, 8), np.float32))
        np.testing.assert_array_equal(rows, self.TABLE[self.IDS])

    def test_a_table_that_shares_its_segment_is_found_behind_the_others(self, tmp_path):
        tensors = [("norm", np.ones(100, np.float32)), ("table", self.TABLE)]
        trunk = build_trunk(*write_trunk(tmp_path, [tensors]), ScriptedReader())
        with trunk.begin() as weights:
            rows = weights.embedding("table", self.IDS)
            weights.vector("norm")
            weights.matmul("table", np.ones((1, 50), np.float32))
        np.testing.assert_array_equal(rows, self.TABLE[self.IDS])

    def test_each_row_is_read_once_in_aligned_windows_ahead_of_the_trunk(self, tmp_path):
        reader = ScriptedReader()
        trunk = self.trunk(tmp_path, reader)
        before = len(reader.requests)
        self.rows(trunk, self.IDS)
        reads = [r for r in reader.requests[before:] if r.priority is Priority.DEMAND]
        assert len(reads) == len(set(self.IDS.tolist()))
        assert all(r.offset % 512 == 0 and r.destination.size % 512 == 0 for r in reads)
        assert trunk.statistics().embedding_bytes == sum(r.destination.size for r in reads)

    def test_a_small_staging_buffer_takes_several_batches(self, tmp_path):
        reader = ScriptedReader()
        trunk = self.trunk(tmp_path, reader, staging=2048)
        np.testing.assert_array_equal(self.rows(trunk, np.arange(300)), self.TABLE)

    def test_a_token_outside_of_the_vocabulary_is_refused(self, tmp_path):
        trunk = self.trunk(tmp_path, ScriptedReader())
        for wrong in (-1, 300):
            with pytest.raises(UsageError, match=f"token {wrong} is outside of the vocabulary of 300"):
                self.rows(trunk, np.array([3, wrong]))
