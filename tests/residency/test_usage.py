import json
import os

import numpy as np
import pytest

from uringinfer.errors import EnvironmentError_
from uringinfer.residency.usage import USAGE_FILE, UsageCounts, read_usage, write_usage

LAYERS = (1, 3)


def counted():
    usage = UsageCounts(LAYERS, 4)
    usage.add(1, np.array([[0, 2], [2, 3]]))
    usage.add(3, np.array([[2, 1]]))
    return usage


def test_counts_survive_a_file(tmp_path):
    write_usage(tmp_path, "abc", counted())
    read, note = read_usage(tmp_path, "abc", LAYERS, 4)
    assert note is None
    np.testing.assert_array_equal(read.counts, [[1, 0, 2, 1], [0, 1, 1, 0]])
    assert list(tmp_path.iterdir()) == [tmp_path / USAGE_FILE]


def test_guesses_survive_a_file_and_give_a_recall(tmp_path):
    usage = counted()
    assert usage.recall is None
    usage.guessed_about, usage.named = 8, 6
    write_usage(tmp_path, "abc", usage)
    assert read_usage(tmp_path, "abc", LAYERS, 4)[0].recall == 0.75


def test_a_file_from_before_guesses_were_counted_is_read(tmp_path):
    content = json.loads(counted().to_json("abc"))
    del content["guesses"]
    (tmp_path / USAGE_FILE).write_text(json.dumps(content))
    usage, note = read_usage(tmp_path, "abc", LAYERS, 4)
    assert (usage.recall, note) == (None, None)
    assert usage.counts.sum() == 6


def test_the_most_used_come_first_and_the_unused_not_at_all():
    assert counted().most_used() == [(1, 2), (1, 0), (1, 3), (3, 1), (3, 2)]


def test_no_file_is_no_note(tmp_path):
    assert read_usage(tmp_path, "abc", LAYERS, 4) == (None, None)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 2}, "another version"),
        ({"container": "x"}, "another model"),
        ({"layers": {"1": [0, 0, 0, 0]}}, "its layers"),
        ({"layers": {"1": [0, 0, 0], "3": [0, 0, 0, 0]}}, "not 4 counts"),
        ({"layers": {"1": [0, 0, 0, True], "3": [0, 0, 0, 0]}}, "no count"),
        ({"layers": {"1": [0, 0, 0, -1], "3": [0, 0, 0, 0]}}, "no count"),
        ({"layers": 7}, "its layers"),
        ({"guesses": 7}, "guesses are no counts"),
        ({"guesses": {"about": 3}}, "guesses are no counts"),
        ({"guesses": {"about": 3, "named": 4}}, "more right guesses"),
    ],
)
def test_what_does_not_fit_is_left_out_with_a_note(tmp_path, change, problem):
    content = json.loads(counted().to_json("abc")) | change
    (tmp_path / USAGE_FILE).write_text(json.dumps(content))
    usage, note = read_usage(tmp_path, "abc", LAYERS, 4)
    assert usage is None
    assert problem in note and USAGE_FILE in note


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000])
def test_what_is_no_json_is_left_out_with_a_note(tmp_path, content):
    (tmp_path / USAGE_FILE).write_text(content)
    usage, note = read_usage(tmp_path, "abc", LAYERS, 4)
    assert usage is None and "cannot be read" in note


def test_a_pipe_is_left_out_with_a_note_without_waiting_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / USAGE_FILE)
    usage, note = read_usage(tmp_path, "abc", LAYERS, 4)
    assert usage is None and "is no regular file" in note


def test_a_pipe_is_not_replaced_and_a_link_stays_one(tmp_path):
    os.mkfifo(tmp_path / USAGE_FILE)
    with pytest.raises(EnvironmentError_, match=r"usage\.json: it is no regular file"):
        write_usage(tmp_path, "abc", counted())
    assert (tmp_path / USAGE_FILE).is_fifo()
    (tmp_path / USAGE_FILE).unlink()
    (tmp_path / USAGE_FILE).symlink_to("elsewhere")
    write_usage(tmp_path, "abc", counted())
    assert (tmp_path / USAGE_FILE).is_symlink()
    assert read_usage(tmp_path, "abc", LAYERS, 4)[0] is not None


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(EnvironmentError_, match=r"usage\.json: No such file"):
        write_usage(tmp_path / "missing", "abc", counted())
