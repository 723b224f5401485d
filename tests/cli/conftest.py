import pytest

from tests.cli.command_line import CommandLine


@pytest.fixture
def command_line(monkeypatch, capsys):
    return CommandLine(monkeypatch, capsys)
