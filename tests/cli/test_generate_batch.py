"""generate with several prompts: one batch, a job that can be gone on with."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from tiny_models import Containers, write_tiny_checkpoint

LINES = [
    {"prompt": "hello", "id": "first"},
    {"ids": [5, 9, 2, 5, 9, 2], "max_tokens": 7, "temperature": 0.8, "seed": 4},
    {"messages": [{"role": "user", "content": "hello"}], "id": 3},
    {"ids": [5, 9], "stop": ["x", "y"]},
    {"ids": [5, 9, 2, 5, 9, 7], "max_tokens": 9},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cli")
    return Containers(write_tiny_checkpoint(directory / "checkpoint"), directory)()


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in LINES) + "\n\n")
    return path


def answers_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_answers_come_in_the_order_asked_and_are_those_of_single_runs(command_line, model, prompts):
    options = ("-n", 6, "--ignore-eos", "-s", 1)
    result = command_line("generate", model, "--prompts", prompts, *options, "--parallel", 2)
    assert result.code == 0, result.stderr
    answers = answers_of(result.stdout)
    assert [answer.get("id") for answer in answers] == ["first", None, 3, None, None]
    assert [len(answer["tokens"]) for answer in answers] == [6, 7, 6, 6, 9]
    single = [
        ("-p", "hello"),
        ("--ids", "5,9,2,5,9,2", "-n", 7, "--temp", 0.8, "-s", 4),
        ("-p", "hello"),
        ("--ids", "5,9", "--stop", "x", "--stop", "y"),
        ("--ids", "5,9,2,5,9,7", "-n", 9),
    ]
    for answer, arguments in zip(answers, single, strict=True):
        alone = json.loads(command_line("generate", model, *options, *arguments, "--json").stdout)
        assert (answer["tokens"], answer["text"]) == (alone["tokens"], alone["text"])
        assert answer["finish_reason"] == alone["finish_reason"]
        assert answer["prompt_tokens"] == len(alone["prompt_ids"])


def test_several_prompts_on_the_command_line_are_a_batch(command_line, model):
    result = command_line("generate", model, "-p", "hello", "-p", "good bye", "-n", 3)
    assert result.code == 0 and len(answers_of(result.stdout)) == 2
    assert "room for 2 conversations" in result.stderr and "tokens each" in result.stderr


def test_a_line_ends_where_json_lines_do_and_nowhere_else(command_line, model):
    text = json.dumps({"prompt": "one\u2028two\x0bthree\x85four"}, ensure_ascii=False)
    result = command_line("generate", model, "--prompts", "-", "-n", 2, stdin=text.encode())
    assert result.code == 0 and len(answers_of(result.stdout)) == 1


def test_a_job_that_broke_off_is_gone_on_with(command_line, model, prompts, tmp_path):
    output = tmp_path / "answers.jsonl"
    arguments = ("generate", model, "--prompts", prompts, "-n", 4, "-s", 1, "-o", output)
    assert command_line(*arguments).code == 0
    whole = output.read_bytes()
    lines = whole.splitlines(keepends=True)
    output.write_bytes(b"".join(lines[:2]) + lines[2][:10])  # killed inside the third line
    again = command_line(*arguments)
    assert output.read_bytes() == whole and "2 of 5 answers are there already" in again.stderr
    assert command_line(*arguments).code == 0 and output.read_bytes() == whole


def test_an_output_of_other_prompts_is_left_as_it_is(command_line, model, prompts, tmp_path):
    output = tmp_path / "notes.txt"
    output.write_text("my notes\n")
    result = command_line("generate", model, "--prompts", prompts, "-o", output)
    assert result.code == 2 and "line 1 is no answer to prompt 1" in result.stderr
    assert output.read_text() == "my notes\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: no JSON"),
        ("[" * 100_000, "line 2: no JSON"),
        ("[]", "line 2 is no object"),
        ('{"ids": [1], "stopp": 1}', "line 2: 'stopp' is not known"),
        ("{}", "line 2 needs exactly one of prompt, messages, ids"),
        ('{"ids": [1], "prompt": "x"}', "line 2 needs exactly one"),
        ('{"ids": [true]}', "'ids' holds something that is no integer"),
        ('{"ids": [1], "max_tokens": -1}', "-1"),
        ('{"ids": [1], "max_tokens": "2"}', "'max_tokens' is '2', not int"),
        ('{"ids": [1], "temperature": -1}', "temperature"),
        ('{"ids": [1], "stop": [1]}', "'stop' holds something that is no text"),
        ('{"ids": []}', "no token"),
        ('{"ids": [99999]}', "99999"),
        ('{"messages": [1]}', "'messages' holds something that is no object"),
        ('{"ids": [1], "max_tokens": 99999999}', "fit"),
    ],
)
def test_a_line_that_cannot_be_answered_says_why_and_spoils_no_other(
    command_line, model, tmp_path, line, message
):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"ids": [1, 2]}\n' + line + '\n{"ids": [1, 2]}\n')
    result = command_line("generate", model, "--prompts", path, "-n", 3, "-c", 64, "--ignore-eos")
    first, wrong, last = answers_of(result.stdout)
    assert first["tokens"] == last["tokens"] and len(first["tokens"]) == 3
    if "99999999" in line:  # more than the context holds ends where the context does
        assert wrong["finish_reason"] == "length" and result.code == 0
        return
    assert wrong["finish_reason"] == "error" and message in wrong["error"]
    assert result.code == 2 and "1 of 3 prompts could not be answered" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-p", "a", "-p", "b", "--json"), "--json is for a single prompt"),
        (("-p", "a", "-p", "b", "--save-session", "s"), "--save-session is for a single prompt"),
        (("-p", "a", "--prompts", "-"), "given more than once"),
        (("-p", "a", "-o", "x"), "--output is for a batch"),
        (("--prompts", "/nonexistent"), "cannot read the prompts"),
    ],
)
def test_what_a_batch_cannot_have_is_told(command_line, model, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = command_line("generate", model, *arguments)
    assert result.code == 2 and message in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 2


def test_a_draft_model_of_another_vocabulary_is_refused_in_one_line(command_line, model, tmp_path):
    other = write_tiny_checkpoint(tmp_path / "checkpoint", tokenizer=False, vocab=400)
    draft = Containers(other, tmp_path)()
    result = command_line("generate", model, "--ids", "1,2", "--draft", draft)
    assert result.code == 2 and "cannot draft for" in result.stderr


def test_a_draft_model_and_guesses_change_no_token(command_line, model):
    run = ("generate", model, "--ids", "1,2,3", "-n", 12, "--ignore-eos", "--json", "--trunk-budget", "1")
    plain = json.loads(command_line(*run, "--guesses", 0).stdout)
    for options in (("--draft", model), ("--guesses", 5), ()):
        other = json.loads(command_line(*run, *options).stdout)
        assert other["tokens"] == plain["tokens"]
        assert other["stats"]["setup"]["guesses"] > 0
    assert plain["stats"]["drafts"] is None
