"""`pack --force` replaces a container in one step, and whoever comes between two packs is told."""

import os
import signal

import pytest
from checkpoint_maker import make_checkpoint
from test_packing_killed import contents, in_child

from uringinfer.container import Container
from uringinfer.errors import EnvironmentError_
from uringinfer.packing import staging
from uringinfer.packing.journal import JOURNAL_NAME
from uringinfer.packing.packer import pack
from uringinfer.packing.staging import partial_path

OPTIONS = {"segment": "layer", "jobs": 1}


@pytest.fixture
def packed(tmp_path):
    """(a container, the checkpoint that is to replace it, old and new contents)."""
    out = tmp_path / "m.uring"
    pack(make_checkpoint(tmp_path / "old"), out, **OPTIONS)
    checkpoint = make_checkpoint(tmp_path / "new", seed=1)
    pack(checkpoint, tmp_path / "new.uring", **OPTIONS)
    return out, checkpoint, contents(out), contents(tmp_path / "new.uring")


def without_journal(directory):
    return {name: data for name, data in contents(directory).items() if name != JOURNAL_NAME}


def killed_at_step(step, work):
    """Whether `work`, in a child, was killed instead of its step-th change of a name."""

    def run():
        count = 0

        def counted(real):
            def call(*args, **kwargs):
                nonlocal count
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)

            return call

        for name in ("rename", "replace", "unlink", "rmdir"):
            setattr(os, name, counted(getattr(os, name)))
        staging.exchange = counted(staging.exchange)
        work()

    return os.WIFSIGNALED(os.waitpid(in_child(run), 0)[1])


@pytest.mark.parametrize("can_exchange", [True, False])
def test_killed_while_it_replaces_a_pack_leaves_the_old_container_or_the_new_one_and_can_be_run_again(
    packed, monkeypatch, can_exchange
):
    out, checkpoint, old, new = packed
    if not can_exchange:
        monkeypatch.setattr(staging, "exchange", lambda first, second: False)
    step, was_killed, outcomes = 0, True, set()
    while was_killed:
        step += 1
        was_killed = killed_at_step(step, lambda: pack(checkpoint, out, force=True, **OPTIONS))
        aside = out.with_name("m.uring.replaced")
        found = without_journal(out if out.exists() else aside)
        assert found in (old, new)
        outcomes.add((found == new, out.exists()))
        if found == new and was_killed:
            pack(checkpoint, out, force=True, **OPTIONS)
            assert contents(out) == new
            pack(out.with_name("old"), out, force=True, **OPTIONS)
            assert not partial_path(out).exists() and not aside.exists()
            step += 3  # the rest of it deletes the old one, file by file
    assert outcomes == {(False, True), (True, True)} | (set() if can_exchange else {(False, False)})
    assert contents(out) == new


def test_a_pack_that_another_one_comes_upon_while_it_commits_is_not_disturbed(packed, monkeypatch):
    out, checkpoint, _, new = packed
    refusals = []
    real = staging.exchange

    def with_a_second_pack(first, second):
        for when in ("before", "after"):
            with pytest.raises(EnvironmentError_, match="another pack is writing to") as caught:
                pack(checkpoint, out, force=True, **OPTIONS)
            refusals.append(caught.value)
            if when == "before":
                assert real(first, second)
        return True

    monkeypatch.setattr(staging, "exchange", with_a_second_pack)
    pack(checkpoint, out, force=True, **OPTIONS)
    assert len(refusals) == 2
    assert contents(out) == new


def test_a_pack_whose_directory_was_taken_away_says_so_and_changes_nothing(packed, monkeypatch):
    out, checkpoint, old, _ = packed
    monkeypatch.setattr(
        staging, "sync_directory", lambda path: path.rename(path.with_name("taken")) and path.mkdir()
    )
    with pytest.raises(EnvironmentError_, match=r"partial was taken away during the pack.*run the same"):
        pack(checkpoint, out, force=True, **OPTIONS)
    assert contents(out) == old


def test_a_container_that_is_being_changed_is_not_replaced_meanwhile(packed):
    out, checkpoint, old, new = packed
    with staging.DirectoryLock(out, busy="busy"):
        with pytest.raises(EnvironmentError_, match="another process is changing"):
            pack(checkpoint, out, force=True, **OPTIONS)
        assert contents(out) == old
    report = pack(checkpoint, out, force=True, **OPTIONS)
    assert report.written_bytes == 0
    assert contents(out) == new


def test_what_appeared_under_the_name_during_a_pack_is_not_replaced_without_force(tmp_path, monkeypatch):
    checkpoint = make_checkpoint(tmp_path / "m")
    out = tmp_path / "m.uring"
    real = staging.sync_directory

    def somebody_writes(path):
        real(path)
        out.mkdir(exist_ok=True)
        (out / "notes").touch()

    monkeypatch.setattr(staging, "sync_directory", somebody_writes)
    with pytest.raises(Exception, match="exists and is no container"):
        pack(checkpoint, out, **OPTIONS)
    assert [path.name for path in out.iterdir()] == ["notes"]


def test_a_container_is_whole_with_the_journal_that_a_killed_pack_left_in_it(packed):
    out, checkpoint, _, new = packed
    (out / JOURNAL_NAME).touch()
    Container.open(out)
    pack(checkpoint, out, force=True, **OPTIONS)
    assert contents(out) == new
