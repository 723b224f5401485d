"""`uringinfer chat`: with a pipe as stdin, on a dumb terminal, and in a real one (tmux)."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path += [str(Path(__file__).parents[1] / room) for room in ("engine", "text")]
import chat_templates
from talking_models import write_talking

from uringinfer import api
from uringinfer.cli.chat_commands import COMMANDS
from uringinfer.cli.chat_screen import Screen
from uringinfer.cli.main import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_talking(tmp_path_factory.mktemp("chat"), chat_templates.CHATML)


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    return write_talking(tmp_path_factory.mktemp("thinking"), chat_templates.THINKING)


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    return write_talking(tmp_path_factory.mktemp("endless"), chat_templates.CHATML, endless=True)


def chat(model, *lines, options=()):
    arguments = ["chat", str(model), "-n", "4", "-c", "512", *map(str, options)]
    return CliRunner().invoke(cli, arguments, input="".join(f"{line}\n" for line in lines))


def talk(model, *lines, options=(), directory):
    """The messages of a conversation that consists of these lines."""
    path = directory / "talk"
    result = chat(model, *lines, f"/save {path}", options=options)
    assert result.exit_code == 0, result.output
    return [dict(message) for message in api.read_header(path).messages]


def said(messages):
    return [message["content"] for message in messages if message["role"] == "user"]


def test_every_line_of_a_pipe_is_a_turn(model, tmp_path):
    result = chat(model, "who?", "", "why?", options=["--session", tmp_path / "talk"])
    assert said(api.read_header(tmp_path / "talk").messages) == ["who?", "why?"]
    assert result.stderr.count("tokens/s, hit rate") == 2 and "bound by" in result.stderr


def test_quiet_leaves_the_answers_alone(model):
    result = chat(model, "who?", options=["--quiet"])
    assert result.stderr == "" and result.stdout.endswith("\n")


def test_turns_are_taken_back_changed_and_answered_anew(model, tmp_path):
    messages = talk(model, "a", "b", "/undo", "c", "/edit d", "/retry", directory=tmp_path)
    assert said(messages) == ["a", "d"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2


def test_the_system_text_is_set_shown_and_taken_away(model, tmp_path):
    result = chat(model, "/system Be brief.", "/system", "/system -", "/system")
    assert "Be brief." in result.stderr and "(no system text)" in result.stderr
    messages = talk(model, "/system Be kind.", "a", "/reset", "b", directory=tmp_path)
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]


def test_settings_change_what_comes(model):
    result = chat(model, "/set max-tokens 2", "/set temp 0.5", "/set", "who?", "/stats")
    assert "temp 0.5" in result.stderr and "max-tokens 2" in result.stderr
    assert "(2 tokens, cut off" in result.stderr and "first token after" in result.stderr


def test_a_saved_conversation_is_gone_on_with(model, tmp_path):
    first = talk(model, "a", directory=tmp_path)
    messages = talk(model, f"/load {tmp_path / 'talk'}", "b", directory=tmp_path)
    assert messages[:2] == first and said(messages) == ["a", "b"]
    resumed = chat(model, "c", options=["--session", tmp_path / "talk"])
    assert resumed.exit_code == 0
    assert said(api.read_header(tmp_path / "talk").messages) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/nonsense", "there is no command '/nonsense'; /help lists them"),
        ("/set heat 1", "there is no setting 'heat'; they are temp, top-k"),
        ("/set temp hot", "'hot' is no value of temp"),
        ("/set temp -1", "temperature is -1.0; it must be 0 or more"),
        ("/save", "no file was named"),
        ("/load /nowhere/x", "cannot read the session"),
        ("/save /nowhere/x", "has not been fed anything yet"),
        ("/retry", "there is no turn to answer anew"),
        ("/edit x", "there is no turn to change"),
        ("/undo", "there is no turn to take back"),
        ("x" * 9000, "do not fit into a context of 512"),
    ],
)
def test_what_cannot_be_is_said_in_one_line_and_the_chat_goes_on(model, line, message):
    result = chat(model, line, "who?", options=["--quiet"])
    assert result.exit_code == 0
    assert message in result.stderr
    assert result.stdout.strip("\n")


def test_help_lists_every_command(model):
    shown = chat(model, "/help").stderr
    assert all(f"/{name} " in shown for name in COMMANDS)
    assert chat(model, "/quit", "who?", options=["--quiet"]).stdout == ""


def test_a_format_without_a_switch_for_thinking_says_so(model, thinking, tmp_path):
    result = chat(model, "who?", options=["--no-think"])
    assert isinstance(result.exception, api.UsageError) and "knows no switch" in str(result.exception)
    chat(thinking, "who?", options=["--no-think", "--session", tmp_path / "talk"])
    assert api.read_header(tmp_path / "talk").variables == {"enable_thinking": False}


def test_reasoning_is_dim_where_colours_are_and_control_characters_do_nothing(monkeypatch, capsys):
    pieces = [api.Piece("hm", "reasoning"), api.Piece("Yes\x1b[2J.")]
    screen = Screen()
    screen.show(pieces)
    assert capsys.readouterr().out == "<think>\nhm\n</think>\n\nYes\x1b[2J.\n"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    Screen().show(pieces)
    assert capsys.readouterr().out == "\x1b[2mhm\x1b[0m\n\nYes␛[2J.\n"


class Terminal:
    """A chat in tmux: what is typed into it, and what stands on its screen."""

    def __init__(self, directory, *arguments, term="xterm-256color"):
        self._socket = str(directory / "tmux")
        self._log = directory / "exit"
        command = f"cd {ROOT} && TERM={term} XDG_STATE_HOME={directory} {sys.executable} -m uringinfer chat"
        command += "".join(f" '{argument}'" for argument in arguments)
        self._tmux("-f", os.devnull, "new-session", "-d", "-x", "100", "-y", "40", f"{command}; sleep 100")

    def _tmux(self, *arguments):
        result = subprocess.run(
            ["tmux", "-S", self._socket, *arguments], capture_output=True, text=True, check=True
        )
        return result.stdout

    def type(self, *keys):
        self._tmux("send-keys", *keys)

    def wait_for(self, text, seconds=60):
        """The screen, once `text` stands on it."""
        deadline = time.monotonic() + seconds
        while text not in (screen := self._tmux("capture-pane", "-p", "-S", "-200")):
            assert time.monotonic() < deadline, f"no {text!r} on the screen:\n{screen}"
            time.sleep(0.1)
        return screen

    def close(self):
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def terminal(tmp_path):
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    opened = []

    def open_terminal(*arguments, **options):
        opened.append(Terminal(tmp_path, *arguments, **options))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


@pytest.mark.slow
def test_a_chat_in_a_terminal_is_typed_interrupted_and_resumed(terminal, endless, tmp_path):
    session = tmp_path / "talk"
    screen = terminal(endless, "-n", 4000, "--session", session)
    screen.wait_for("\n>")
    screen.type("one", "Escape", "Enter", "two", "Enter")
    time.sleep(1)
    screen.type("C-c")
    screen.wait_for("interrupted")
    screen.type("/und", "Tab")
    screen.wait_for("> /undo")
    screen.type("Enter")
    screen.wait_for("(taken back)")
    screen.type("three", "Enter")
    time.sleep(1)
    screen.type("C-c")
    screen.wait_for("interrupted, ")
    screen.type("C-d")
    deadline = time.monotonic() + 30
    while not session.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    messages = api.read_header(session).messages
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert said(messages) == ["three"]
    assert messages[1]["content"]
    screen.close()

    resumed = terminal(endless, "-n", 5, "--session", session)
    resumed.wait_for("\n>")
    resumed.type("Up")
    resumed.wait_for("> three")
    resumed.type("C-c")
    resumed.wait_for("(Ctrl-D leaves)")
    resumed.type("/edit", "Enter")
    resumed.wait_for("> three")
    resumed.type(" more", "Enter")
    resumed.wait_for("tokens/s")
    resumed.type("C-d")
    deadline = time.monotonic() + 30
    while said(api.read_header(session).messages) != ["three more"] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert said(api.read_header(session).messages) == ["three more"]


@pytest.mark.slow
def test_a_dumb_terminal_is_asked_line_by_line(terminal, model):
    screen = terminal(model, "-n", 5, term="dumb")
    screen.wait_for("\n>")
    screen.type("hello", "Enter")
    assert "\x1b" not in screen.wait_for("tokens/s")
