import io
import os
import sys
from types import SimpleNamespace

import pytest

from uringinfer.cli import inputs
from uringinfer.cli.inputs import read_text
from uringinfer.errors import BudgetError, UsageError

MIB = 1 << 20


@pytest.fixture
def machine(monkeypatch):
    """100 MiB may be used, of which 60 are in use."""
    granted = SimpleNamespace(usable_bytes=100 * MIB, resident=60 * MIB)
    monkeypatch.setattr(inputs.Machine, "read", lambda: granted)
    return granted


def sparse(tmp_path, nbytes):
    path = tmp_path / "text"
    path.touch()
    os.truncate(path, nbytes)
    return path


@pytest.mark.parametrize("text", ["", "abc", "é" * 70_000, "🙂" * 40_000, "a" * 65535 + "日本"])
def test_a_file_is_read_as_it_is_wherever_blocks_end(tmp_path, text):
    path = tmp_path / "text"
    path.write_text(text, encoding="utf-8")

    assert read_text(None, path, None) == text


@pytest.mark.parametrize(("data", "place"), [(b"ab\xff", 2), (b"a" * 70_000 + b"\xc3", 70_000)])
def test_what_is_not_utf_8_is_refused_with_its_place(tmp_path, data, place):
    path = tmp_path / "text"
    path.write_bytes(data)

    with pytest.raises(UsageError, match=rf"is not UTF-8 \(byte {place}\)"):
        read_text(None, path, None)


def test_a_file_larger_than_what_may_be_used_is_refused_before_it_is_read(tmp_path, machine, monkeypatch):
    monkeypatch.setattr(inputs, "_decoded", pytest.fail)

    with pytest.raises(BudgetError, match=f"{100 * MIB} bytes") as caught:
        read_text(None, sparse(tmp_path, 21 * MIB), None)
    assert (caught.value.floor, caught.value.budget) == (102 * MIB, 100 * MIB)


def test_a_budget_bounds_it_where_that_is_less(tmp_path, machine):
    path = sparse(tmp_path, 6 * MIB)

    with pytest.raises(BudgetError):
        read_text(None, path, None, budget=70 * MIB)
    assert len(read_text(None, path, None, budget=90 * MIB)) == 6 * MIB


def test_what_comes_through_a_pipe_is_bounded_while_it_comes(machine, monkeypatch):
    read = io.BytesIO(b"a" * (30 * MIB))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=read))

    with pytest.raises(BudgetError):
        read_text(None, None, "-")
    assert read.tell() <= 21 * MIB
