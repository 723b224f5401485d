import numpy as np
import pytest

from uringinfer.engine.logits_file import LogitsFile
from uringinfer.errors import EnvironmentError_


def test_rows_that_were_appended_are_read_back_by_numpy(tmp_path):
    rows = np.random.default_rng(0).standard_normal((25, 7)).astype(np.float32)
    with LogitsFile(tmp_path / "logits.npy", 7) as file:
        for start, stop in ((0, 1), (1, 20), (20, 25)):
            file.append(rows[start:stop])
    read = np.load(tmp_path / "logits.npy")
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, rows)


def test_no_rows_are_an_empty_array(tmp_path):
    with LogitsFile(tmp_path / "logits.npy", 7):
        pass
    assert np.load(tmp_path / "logits.npy").shape == (0, 7)


def test_rows_before_an_error_are_kept(tmp_path):
    with pytest.raises(ZeroDivisionError), LogitsFile(tmp_path / "logits.npy", 3) as file:
        file.append(np.ones((2, 3), np.float32))
        raise ZeroDivisionError
    assert np.load(tmp_path / "logits.npy").shape == (2, 3)


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(EnvironmentError_, match=r"missing/logits\.npy: No such file"):
        LogitsFile(tmp_path / "missing" / "logits.npy", 3)


def test_a_full_drive_is_named_by_the_rows_that_do_not_fit():
    with (
        pytest.raises(EnvironmentError_, match="cannot write /dev/full: No space left"),
        LogitsFile("/dev/full", 1000) as file,
    ):
        file.append(np.zeros((1000, 1000), np.float32))
        pytest.fail("the rows were taken")


def test_a_drive_that_is_full_at_the_end_is_named_too():
    full = pytest.raises(EnvironmentError_, match="cannot write /dev/full: No space left")
    with full, LogitsFile("/dev/full", 3) as file:
        file.append(np.zeros((1, 3), np.float32))


def test_a_full_drive_does_not_hide_the_error_that_ended_the_run():
    with pytest.raises(ZeroDivisionError), LogitsFile("/dev/full", 3):
        raise ZeroDivisionError
