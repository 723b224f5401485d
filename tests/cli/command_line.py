"""Runs the command line as a whole, in this process."""

import io
import sys
from types import SimpleNamespace

import pytest

from uringinfer.cli.main import main


class CommandLine:
    """`command_line("info", path)` -> exit code, stdout, stderr."""

    def __init__(self, monkeypatch, capsys):
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments, stdin=b""):
        self._monkeypatch.setattr(sys, "argv", ["uringinfer", *map(str, arguments)])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        with pytest.raises(SystemExit) as exited:
            main()
        captured = self._capsys.readouterr()
        return SimpleNamespace(code=exited.value.code, stdout=captured.out, stderr=captured.err)
