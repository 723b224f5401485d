"""A short run of every mode of `scripts/torture.py`; hours of it are run by hand (docs/reliability.md)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("torture")


def torture(directory, *arguments):
    """Runs the script; the numbers of its last line."""
    command = [sys.executable, ROOT / "scripts" / "torture.py", *arguments, "--directory", directory]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=500, env=environment
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_damaged_containers_give_no_wrong_answer(directory):
    assert torture(directory, "damage", "--count", 18).startswith("18 cases")


def test_hostile_files_are_taken_or_refused_in_seconds_and_little_memory(directory):
    assert torture(directory, "parsers", "--count", 70).startswith("70 cases")


@pytest.mark.skipif(shutil.which("cc") is None, reason="the shim that kills needs a C compiler")
def test_a_kill_at_a_call_leaves_the_old_or_the_new(directory):
    # one of each 31 calls, of every operation
    assert torture(directory, "kills", "--count", 620, "--every", 31).startswith("20 cases")


def test_packs_at_once_leave_a_whole_container(directory):
    assert torture(directory, "packs", "--count", 3).startswith("3 cases")


def test_a_soak_of_seconds_stays_flat(directory):
    assert torture(directory, "soak", "--minutes", 0.1).startswith("1 cases")


def test_what_breaks_is_named_with_the_command_that_breaks_it_again(directory, monkeypatch, capsys):
    sys.path.insert(0, str(ROOT / "scripts"))
    import torture as script
    from tortures import damage

    monkeypatch.setattr(damage, "prepare", lambda directory: {})
    monkeypatch.setattr(damage, "run", lambda made, number, seed: "a wrong answer" if number == 3 else None)
    monkeypatch.setattr(sys, "argv", ["torture.py", "damage", "--seed", "9", "--directory", str(directory)])
    script.MADE.clear()
    assert script.main() == 1
    said = capsys.readouterr().out
    assert "damage 3: a wrong answer\nagain: scripts/torture.py damage --seed 9 --first 3 --count 1" in said
