"""What lies under a file's name is looked at before anything waits for it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.storage import regular
from uringinfer.storage.regular import open_regular, read_regular, replacing


def test_a_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"weights")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file") == read_regular(tmp_path / "link") == b"weights"
    with open_regular(tmp_path / "link") as file:
        assert file.read(3) == b"wei"


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IntegrityError, match="pipe: is no regular file"):
        read_regular(tmp_path / "pipe")


def test_a_socket_a_device_and_a_directory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's address must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path in (Path("socket"), Path("/dev/zero"), tmp_path):
            with pytest.raises(IntegrityError, match="is no regular file"):
                open_regular(path)


def test_what_is_not_there_is_an_oserror_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_a_refused_file_is_closed(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(IntegrityError):
        open_regular(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_new_file_takes_the_place_of_the_older_one_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"older")
    with replacing(path, 0o600) as file:
        file.write(b"newer")
        assert path.read_bytes() == b"older"
    assert path.read_bytes() == b"newer"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one_and_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    with replacing(tmp_path / "link") as file:
        file.write(b"bytes")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"bytes"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EnvironmentError_, match="it is no regular file"), replacing(tmp_path / "pipe"):
        pytest.fail("a pipe was opened")


def temporary_name(monkeypatch: pytest.MonkeyPatch, place: Path, token: str) -> Path:
    """Where the next temporary file for `place` would lie."""
    tokens = iter([token])
    real = regular.secrets.token_hex
    monkeypatch.setattr(regular.secrets, "token_hex", lambda nbytes: next(tokens, None) or real(nbytes))
    return place.with_name(f".{place.name}.{token}")


def test_a_link_planted_under_the_temporary_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    temporary_name(monkeypatch, tmp_path / "file", "ab" * 8).symlink_to("precious")
    with pytest.raises(FileExistsError), replacing(tmp_path / "file") as file:
        file.write(b"overwritten")
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_two_temporary_files_have_no_name_in_common(tmp_path: Path) -> None:
    names = set()
    for _ in range(3):
        with replacing(tmp_path / "file") as file:
            names.add(file.name if isinstance(file.name, str) else next(tmp_path.glob(".file.*")).name)
    assert len(names) == 3


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    pid = os.fork()
    if pid == 0:
        with replacing(path) as file:
            file.write(b"half")
            os._exit(9)
    os.waitpid(pid, 0)
    assert len(list(tmp_path.iterdir())) == 1
    with replacing(path) as first:
        with replacing(path) as second:
            second.write(b"second")
        first.write(b"first")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_as_long_as_names_may_be_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 127)
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
