import pytest

from tests.cli.command_line import CommandLine
from uringinfer import api


@pytest.fixture(autouse=True)
def no_rates_of_this_machine(monkeypatch):
    """What `probe --save` kept for whoever runs the tests predicts nothing in them."""
    monkeypatch.setattr(api, "saved_rate", lambda path: None)


@pytest.fixture
def command_line(monkeypatch, capsys):
    return CommandLine(monkeypatch, capsys)
