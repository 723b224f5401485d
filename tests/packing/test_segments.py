import pytest
from hypothesis import given
from hypothesis import strategies as st

from uringinfer.packing.segments import Item, auto_segment_bytes, cut_group

MIB = 1 << 20


def matrix(name, rows, cols=8192):
    return Item(name, "bf16", rows, cols, splittable=True)


def vector(name, n=8192):
    return Item(name, "bf16", n, 1, splittable=False)


def rows(segments):
    return [[(cut.index, cut.start, cut.stop) for cut in segment] for segment in segments]


def test_tensors_share_a_segment_while_they_fit():
    segments = cut_group([vector("n"), matrix("q", 1024), matrix("k", 1024), matrix("v", 4096)], 64 * MIB)
    assert rows(segments) == [[(0, 0, 8192), (1, 0, 1024), (2, 0, 1024)], [(3, 0, 4096)]]


def test_a_large_matrix_is_split_into_panels_of_equal_size():
    assert rows(cut_group([matrix("up", 9000)], 64 * MIB)) == [
        [(0, 0, 3000)],
        [(0, 3000, 6000)],
        [(0, 6000, 9000)],
    ]


def test_a_small_tensor_shares_the_first_panel_of_the_matrix_behind_it():
    segments = cut_group([vector("n"), matrix("q", 8192), vector("m")], 64 * MIB)
    assert [cut.index for cut in segments[0]] == [0, 1]
    assert [cut.index for cut in segments[-1]] == [1, 2]


def test_a_matrix_that_must_stay_whole_is_a_segment_larger_than_asked():
    item = Item("conv", "bf16", 8192, 8192, splittable=False)
    assert rows(cut_group([vector("n"), item], 64 * MIB)) == [[(0, 0, 8192)], [(1, 0, 8192)]]


def test_without_a_bound_a_group_is_one_segment():
    assert len(cut_group([vector("n"), matrix("q", 8192), matrix("up", 28672)], None)) == 1


@pytest.mark.parametrize(
    ("model_bytes", "expected"),
    [(10**6, MIB), (64 * MIB, MIB), (269 * 10**6, 269 * 10**6 // 64 // 4096 * 4096), (10**12, 64 * MIB)],
)
def test_the_default_size_is_a_64th_of_the_model_between_one_and_64_mib(model_bytes, expected):
    assert auto_segment_bytes(model_bytes) == expected


items = st.builds(
    Item,
    st.just("t"),
    st.sampled_from(["bf16", "f32"]),
    st.integers(1, 300),
    st.integers(1, 300),
    st.booleans(),
)


@given(st.lists(items, max_size=8), st.integers(1, 64).map(lambda n: n * 4096))
def test_every_row_lies_in_one_segment_in_order_within_the_bound(group, bound):
    segments = cut_group(group, bound)
    order = [(cut.index, row) for segment in segments for cut in segment for row in (cut.start, cut.stop - 1)]
    assert order == sorted(order)
    covered = dict.fromkeys(range(len(group)), 0)
    for segment in segments:
        end = 0
        for cut in segment:
            assert cut.start == covered[cut.index]
            covered[cut.index] = cut.stop
            assert cut.offset == -(-end // 64) * 64
            assert cut.nbytes == group[cut.index].nbytes(cut.stop - cut.start)
            end = cut.offset + cut.nbytes
        only = group[segment[0].index]
        assert end <= bound or (len(segment) == 1 and (not only.splittable or only.nbytes(1) > bound))
    assert covered == {index: item.rows for index, item in enumerate(group)}
