"""`uringinfer generate` in a chat format: turns of one conversation, a system text, template variables."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path += [str(Path(__file__).parents[1] / room) for room in ("engine", "text")]
import chat_templates
from talking_models import write_talking

from uringinfer import api
from uringinfer.cli.main import cli


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_talking(tmp_path_factory.mktemp("chat"), chat_templates.CHATML)


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    return write_talking(tmp_path_factory.mktemp("thinking"), chat_templates.THINKING)


def run(*arguments):
    return CliRunner().invoke(cli, ["generate", *map(str, arguments)], catch_exceptions=False)


def prompt_of(model, *arguments):
    generation = json.loads(run(model, "-n", 4, "--json", "--quiet", *arguments).stdout)
    return api.Prompter.of_model(Path(model)).tokenizer.decode(generation["prompt_ids"])


def test_a_second_turn_does_not_repeat_the_system_text_and_closes_the_first(model, tmp_path):
    session = tmp_path / "s"
    run(model, "-p", "who?", "-n", 2, "--ignore-eos", "--save-session", session)
    prompt = prompt_of(model, "-p", "why?", "--load-session", session)
    assert prompt.count("You are helpful.") == 1
    assert "<|im_end|>\n<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\n" in prompt


def test_what_goes_on_without_a_prompt_belongs_to_the_last_answer(model, tmp_path):
    session = tmp_path / "s"
    texts = [run(model, "-p", "who?", "-n", 3, "--ignore-eos", "--quiet", "--save-session", session).stdout]
    again = ("--load-session", session, "--save-session", session)
    texts.append(run(model, "-n", 3, "--ignore-eos", "--quiet", *again).stdout)
    messages = api.read_header(session).messages
    assert messages[-1]["content"] == "".join(text.removesuffix("\n") for text in texts)


def test_a_system_text_and_variables_reach_the_template(model, thinking):
    assert prompt_of(model, "-p", "x", "--system", "Be brief.").startswith("<|im_start|>system\nBe brief.")
    assert prompt_of(thinking, "-p", "x").endswith("assistant\n")
    assert prompt_of(thinking, "-p", "x", "--var", "enable_thinking=false").endswith("</think>\n\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--var", "thinking"], "'thinking' sets no variable"),
        (["--raw", "--system", "x"], "--system is for a chat format, and a prompt as it is has none"),
        (["--raw", "--var", "a=1"], "--var is for a chat format"),
    ],
)
def test_what_a_chat_format_would_have_to_be_told_is_refused_without_one(model, arguments, message):
    with pytest.raises(api.UsageError, match=message):
        run(model, "-p", "x", *arguments)


def test_reasoning_is_shown_between_marks(monkeypatch, model):
    pieces = [api.Piece("hm", "reasoning"), api.Piece("", "answer", (1,)), api.Piece("Yes.", "answer")]
    monkeypatch.setattr(api.Stream, "__next__", lambda self: next(self.fake))
    monkeypatch.setattr(api.Stream, "fake", iter(pieces), raising=False)
    monkeypatch.setattr(api.Stream, "generation", property(lambda self: self._run.generation()))
    assert run(model, "-p", "x", "--quiet").stdout.startswith("<think>\nhm\n</think>\n\nYes.")
