"""Directories are locked themselves, wherever they are renamed to, and exchanged in one step."""

from pathlib import Path

import pytest

from uringinfer.errors import EnvironmentError_
from uringinfer.storage import directories
from uringinfer.storage.directories import DirectoryLock, exchange


def test_a_lock_goes_where_its_directory_is_renamed_to(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path / "a", busy="busy", make=True) as lock:
        (tmp_path / "a").rename(tmp_path / "b")
        with pytest.raises(EnvironmentError_, match="busy; wait for it"):
            DirectoryLock(tmp_path / "b", busy="busy")
        assert lock.is_at(tmp_path / "b")
        assert not lock.is_at(tmp_path / "a")
        DirectoryLock(tmp_path / "a", busy="busy", make=True).close()
    DirectoryLock(tmp_path / "b", busy="busy").close()


def test_a_directory_that_was_replaced_while_it_was_locked_is_locked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = directories.fcntl.flock
    (tmp_path / "a").mkdir()

    def replaced_meanwhile(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(directories.fcntl, "flock", real)
        (tmp_path / "a").rename(tmp_path / "gone")
        real(descriptor, operation)

    monkeypatch.setattr(directories.fcntl, "flock", replaced_meanwhile)
    with DirectoryLock(tmp_path / "a", busy="busy", make=True) as lock:
        assert lock.is_at(tmp_path / "a")


def test_two_directories_change_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()


def test_what_cannot_be_exchanged_is_an_oserror_with_both_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        exchange(tmp_path / "a", tmp_path / "b")
    assert (caught.value.filename, caught.value.filename2) == (str(tmp_path / "a"), str(tmp_path / "b"))


def test_a_library_without_renameat2_exchanges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories.ctypes, "CDLL", lambda *arguments, **options: object())
    assert not exchange(tmp_path / "a", tmp_path / "b")
