"""What is read damaged is read again, and never used if it stays damaged."""

import numpy as np
import pytest
from expert_bench import RECORD, Bench
from trunk_fakes import ScriptedReader, build_trunk, write_trunk

from uringinfer.container.row_checksums import block_checksums
from uringinfer.errors import IntegrityError
from uringinfer.residency import checker as checking
from uringinfer.residency.checker import ReadChecker

SIZE = 64
LAYERS = {f"layers.{n}.w": np.full((SIZE, SIZE), n + 1, np.float32) for n in range(4)}
TABLE = np.arange(300 * 50, dtype=np.float32).reshape(300, 50)


@pytest.fixture
def reader():
    return ScriptedReader(eager=True)


@pytest.fixture
def trunk_file(tmp_path):
    return write_trunk(tmp_path, [[item] for item in LAYERS.items()])


def products(trunk):
    with trunk.begin() as weights:
        return [float(weights.matmul(name, np.ones((1, SIZE), np.float32))[0, 0]) for name in LAYERS]


@pytest.mark.parametrize("pinned", [(), (2,)], ids=["streamed", "pinned"])
def test_a_segment_that_was_read_damaged_once_is_right_in_the_end_and_the_report_says_so(
    trunk_file, reader, pinned
):
    segments, file = trunk_file
    reader.corrupting = {segments[2].offset: [1]}
    checker = ReadChecker(reader)
    trunk = build_trunk(segments, file, reader, pinned=pinned, checker=checker)
    assert products(trunk) == [SIZE * (n + 1.0) for n in range(4)]
    assert checker.statistics().repeated == 1
    assert "segment 'layers.2.w/0' of the trunk" in checker.notes[0]
    assert "was right when it was read again" in checker.notes[0]


@pytest.mark.parametrize(
    ("flips", "outcome"), [([4, 4], "gave the same bytes"), ([4, 8], "gave other bytes")]
)
def test_a_segment_that_stays_damaged_is_named_with_its_place_and_what_the_second_read_gave(
    trunk_file, reader, flips, outcome
):
    segments, file = trunk_file
    reader.corrupting = {segments[1].offset: flips}
    trunk = build_trunk(segments, file, reader, checker=ReadChecker(reader))
    with pytest.raises(IntegrityError, match=f"segment 'layers.1.w/0' .*{outcome}") as caught:
        products(trunk)
    assert f"{file.path}, {segments[1].nbytes} bytes at offset {segments[1].offset}" in str(caught.value)


def test_a_record_that_was_read_damaged_once_is_right_in_the_end(tmp_path):
    bench = Bench(tmp_path)
    bench.reader.corrupting = {5 * RECORD: [128]}
    checker = ReadChecker(bench.reader)
    assert bench.use(bench.cache(8, checker=checker), 1, 5) == [5]
    assert checker.statistics().repeated == 1


def test_large_reads_are_checked_on_another_thread_while_others_are_computed(trunk_file, reader, monkeypatch):
    segments, file = trunk_file
    monkeypatch.setattr(checking, "HAND_OVER_BYTES", 1)
    reader.corrupting = {segments[3].offset: [2, 2]}
    started = []

    class Checker(ReadChecker):
        def confirm(self, what, request, expected, started_check=None):
            started.append(started_check is not None)
            super().confirm(what, request, expected, started_check)

    checker = Checker(reader)
    trunk = build_trunk(segments, file, reader, slots=3, checker=checker)
    with pytest.raises(IntegrityError, match=r"layers\.3\.w/0"):
        products(trunk)
    checker.close()
    assert any(started)


def table_trunk(directory, reader, checker, *, table):
    groups = [[("table", TABLE)], [("head", np.eye(50, dtype=np.float32))]]
    if not table:
        groups.reverse()
    segments, file = write_trunk(directory, groups, panel_rows=128, table=table)
    data = np.fromfile(file.path, np.uint8)
    checksums = {
        number: block_checksums(data[segment.offset :][: segment.nbytes])
        for number, segment in enumerate(segments)
        if segment.parts[0].name == "table"
    }
    return build_trunk(segments, file, reader, checker=checker, row_checksums=checksums), file


def rows_of(trunk, ids):
    with trunk.begin() as weights:
        rows = weights.embedding("table", np.array(ids))
        weights.abandon()
        return rows


@pytest.mark.parametrize("table", ["table", ""], ids=["a table", "a head that serves as one"])
def test_a_flipped_bit_of_a_table_is_found_by_the_row_that_it_belongs_to_and_no_other(
    tmp_path, reader, table
):
    trunk, file = table_trunk(tmp_path, reader, ReadChecker(reader), table=table)
    start = file.path.read_bytes().find(TABLE[200].tobytes())
    with file.path.open("r+b") as damaged:
        damaged.seek(start + 7)
        damaged.write(b"\xff")
    with pytest.raises(IntegrityError, match="row 200 of an embedding table, block ") as caught:
        rows_of(trunk, [3, 200])
    assert f"4096 bytes at offset {start // 4096 * 4096}" in str(caught.value)
    assert np.array_equal(rows_of(trunk, [3, 100, 299]), TABLE[[3, 100, 299]])


def test_a_row_that_was_read_damaged_once_is_right_in_the_end(tmp_path, reader):
    checker = ReadChecker(reader)
    trunk, _ = table_trunk(tmp_path, reader, checker, table="table")
    reader.corrupting = {0: [1]}
    assert np.array_equal(rows_of(trunk, [0, 1]), TABLE[:2])
    assert checker.statistics().repeated == 1
