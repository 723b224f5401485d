import os

import pytest

from uringinfer.engine.outputs import check_writable
from uringinfer.errors import EnvironmentError_


def test_a_new_file_and_an_old_one_pass_and_are_left_alone(tmp_path):
    check_writable(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").write_text("kept")
    check_writable(tmp_path / "old")
    check_writable(tmp_path / "old", in_one_step=True)
    assert (tmp_path / "old").read_text() == "kept"


def test_only_a_regular_file_is_replaced_in_one_step(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", "/dev/full"):
        check_writable(path)
        with pytest.raises(EnvironmentError_, match=f"cannot write {path}: it is no regular file"):
            check_writable(path, in_one_step=True)


def test_the_directory_that_a_link_leads_to_must_take_the_file(tmp_path):
    (tmp_path / "link").symlink_to("missing/file")
    with pytest.raises(EnvironmentError_, match="link: No such file or directory"):
        check_writable(tmp_path / "link", in_one_step=True)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("no/file", "No such file or directory"), ("old/file", "Not a directory"), (".", "Is a directory")],
)
def test_a_place_for_no_file_is_named(tmp_path, name, problem):
    (tmp_path / "old").write_text("")
    with pytest.raises(EnvironmentError_, match=f"cannot write .*: {problem}; choose another file"):
        check_writable(tmp_path / name)


@pytest.mark.parametrize(
    ("locked", "in_one_step", "refused"),
    [("old", False, True), (".", False, False), (".", True, True), ("old", True, False)],
)
def test_a_file_written_in_one_step_needs_its_directory_and_another_itself(
    tmp_path, monkeypatch, locked, in_one_step, refused
):
    (tmp_path / "old").write_text("")
    # to the superuser everything is writable, so permissions are played
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / locked)
    if refused:
        with pytest.raises(EnvironmentError_, match="old: Permission denied"):
            check_writable(tmp_path / "old", in_one_step=in_one_step)
    else:
        check_writable(tmp_path / "old", in_one_step=in_one_step)
