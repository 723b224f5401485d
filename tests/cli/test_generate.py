import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

sys.path.append(str(Path(__file__).parents[1] / "engine"))
from tiny_models import Containers, pack_moe, write_tiny_checkpoint

from uringinfer import api
from uringinfer.cli.main import cli, main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cli")
    return str(Containers(write_tiny_checkpoint(directory / "checkpoint"), directory)())


def run(*arguments, text=None):
    """Runs the command in this process; errors come as exceptions, as `main` sees them."""
    return CliRunner().invoke(cli, ["generate", *map(str, arguments)], input=text, catch_exceptions=False)


def run_main(monkeypatch, capsys, *arguments):
    """The exit code and stderr of the command line as a whole."""
    monkeypatch.setattr(sys, "argv", ["uringinfer", "generate", *map(str, arguments)])
    with pytest.raises(SystemExit) as exited:
        main()
    return exited.value.code, capsys.readouterr().err


def test_text_goes_to_stdout_and_everything_else_to_stderr(model):
    result = run(model, "-p", "hello", "-n", 8, "--ignore-eos")
    generation = json.loads(run(model, "-p", "hello", "-n", 8, "--ignore-eos", "--json").stdout)
    assert result.exit_code == 0
    assert result.stdout == generation["text"] + "\n"
    assert "hit rate" in result.stderr and "tokens/s" in result.stderr


def test_json_is_one_object_with_the_documented_keys(model):
    result = run(model, "-p", "hello", "-n", 4, "--json")
    generation = json.loads(result.stdout)
    assert set(generation) == (
        {"prompt_ids", "tokens", "text", "reasoning", "message", "logprobs"}
        | {"finish_reason", "seed", "stats", "notes"}
    )
    assert len(generation["tokens"]) <= 4
    assert {"prompt", "decode", "setup", "peak_rss_bytes", "bound_by"} <= set(generation["stats"])


def test_statistics_can_be_left_out(model):
    assert "tokens/s" not in run(model, "-p", "hello", "-n", 2, "--no-stats").stderr


def test_the_prompt_comes_from_a_file_from_stdin_or_from_numbers(model, tmp_path):
    (tmp_path / "prompt.txt").write_text("hello")
    ids = json.loads(run(model, "-p", "hello", "-n", 0, "--json").stdout)["prompt_ids"]
    for arguments, text in (
        (["-f", tmp_path / "prompt.txt"], None),
        (["-f", "-"], "hello"),
        (["-"], "hello"),
        (["--ids", ",".join(map(str, ids))], None),
    ):
        assert json.loads(run(model, *arguments, "-n", 0, "--json", text=text).stdout)["prompt_ids"] == ids


def test_raw_leaves_the_chat_format_out(model):
    raw, chat = (
        json.loads(run(model, "-p", "hello", "-n", 0, "--json", *flag).stdout) for flag in (["--raw"], [])
    )
    assert len(raw["prompt_ids"]) < len(chat["prompt_ids"])


def test_a_template_file_takes_the_place_of_the_models_own(model, tmp_path):
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    ours = run(model, "-p", "hello", "-n", 0, "--json", "--chat-template", tmp_path / "t.jinja")
    raw = run(model, "-p", "hello", "-n", 0, "--json", "--raw")
    assert json.loads(ours.stdout)["prompt_ids"] == json.loads(raw.stdout)["prompt_ids"]


@pytest.mark.parametrize(("tokens", "rows"), [(5, 4 + 5 - 1), (1, 4), (0, 4)])
def test_logits_are_written_for_every_position_fed(model, tmp_path, tokens, rows):
    path = tmp_path / "logits.npy"
    result = run(model, "--ids", "1,2,3,4", "-n", tokens, "--ignore-eos", "--logits-out", path, "--json")
    logits = np.load(path)
    assert (logits.dtype, logits.shape) == (np.float32, (rows, 600))
    generated = json.loads(result.stdout)["tokens"]
    assert logits[3 : 3 + tokens].argmax(axis=1).tolist() == generated


def test_sampling_options_reach_the_sampler(model):
    def tokens(*options):
        return json.loads(run(model, "--ids", "1,2", "-n", 8, "--ignore-eos", "--json", *options).stdout)[
            "tokens"
        ]

    assert tokens("--temp", 2, "-s", 1) != tokens("--temp", 2, "-s", 2)
    assert tokens("--temp", 2, "-s", 1) == tokens("--temp", 2, "-s", 1)
    for option, value in (("--top-k", 1), ("--top-p", 1e-9), ("--min-p", 1.0)):
        assert tokens("--temp", 2, option, value) == tokens()
    assert len(set(tokens("--repeat-penalty", 1000.0))) == 8


def test_stop_strings_end_the_text(model):
    text = json.loads(run(model, "--ids", "1,2", "-n", 12, "--ignore-eos", "--json").stdout)["text"]
    stopped = json.loads(
        run(model, "--ids", "1,2", "-n", 12, "--ignore-eos", "--json", "--stop", text[3:5]).stdout
    )
    assert stopped["text"] == text[: text.index(text[3:5])]
    assert stopped["finish_reason"] == "stop"


def test_loading_options_reach_the_engine(model):
    options = ["--io", "preadv", "--placement", "prefix", "--ring-slots", 3, "-t", 1, "--chunk", 3, "-c", 77]
    setup = json.loads(run(model, "--ids", "1,2,3,4", "-n", 1, "--json", *options).stdout)["stats"]["setup"]
    assert (setup["reader"], setup["placement"], setup["threads"]) == ("preadv", "prefix", 1)
    assert (setup["chunk"], setup["context"]) == (3, 77)


def test_the_context_is_what_prompt_and_answer_need_rounded_up(model):
    setup = json.loads(run(model, "--ids", "1,2,3", "-n", 300, "--stop", "e", "--json").stdout)["stats"][
        "setup"
    ]
    assert setup["context"] == 512


def test_a_checkpoint_is_packed_into_the_directory_that_was_named(tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "model", layers=1)
    for announced in (True, False):
        result = run(checkpoint, "--ids", "1", "-n", 1, "--pack-dir", tmp_path / "packed")
        assert ("packing" in result.stderr) is announced
    assert len(list((tmp_path / "packed").glob("*.uring"))) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-p", "a", "--ids", "1"], 2, "both text and --ids"),
        (["-p", "a", "-"], 2, "more than once"),
        ([], 2, "no prompt was given"),
        (["--ids", "1,x"], 2, "not a list of token numbers"),
        (["--ids", "1,,2"], 2, "'1,,2' is not a list of token numbers"),
        (["--ids", "1,600"], 2, "token 600 is outside"),
        (["--ids", f"1,{10**20}"], 2, f"token {10**20} is outside"),
        (["-p", "a", "--temp", "-1"], 2, "temperature is -1.0"),
        (["-p", "a", "--budget", "12q"], 2, "not a size"),
        (["-p", "a", "--budget", "1G", "--preset", "laptop"], 2, "exclude each other"),
        (["-p", "a", "--budget", "1M"], 5, "below this model's floor"),
        (["-p", "a", "-c", "99999"], 2, "at most 8192"),
        (["-f", "/nonexistent"], 2, "cannot read the prompt"),
    ],
)
def test_mistakes_give_one_line_and_their_exit_code(monkeypatch, capsys, model, arguments, code, message):
    got, err = run_main(monkeypatch, capsys, model, *arguments)
    assert got == code
    assert message in err
    assert "Traceback" not in err


def test_wrong_sampling_is_told_before_anything_is_loaded(monkeypatch, capsys, tmp_path):
    code, err = run_main(monkeypatch, capsys, tmp_path / "none", "-p", "a", "--temp", "-1")
    assert (code, err) == (2, "uringinfer: temperature is -1.0; it must be 0 or more\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--ids", "1,600"], 2, "token 600 is outside of the vocabulary of 600"),
        (["--ids", "-1"], 2, "token -1 is outside of the vocabulary of 600"),
        (["--ids", ""], 2, "there is no token to feed"),
        (["--ids", "1", "--stop", ""], 2, "a stop string is empty"),
        (["--ids", "1", "--trace", "trace"], 2, "MODEL has no routed experts, so there is no trace"),
        (["--ids", "1", "--learn"], 2, "MODEL has no routed experts, so there is no usage"),
        *(
            (["--ids", "1", option, path], 3, f"cannot write {path}: {problem}")
            for option in ("--logits-out", "--save-session", "--trace", "--report")
            for path, problem in (("missing/file", "No such file or directory"), ("..", "Is a directory"))
        ),
        # a session is renamed into its place: the device would be gone
        (["--ids", "1", "--save-session", "/dev/full"], 3, "cannot write /dev/full: it is no regular file"),
    ],
)
def test_what_is_wrong_with_a_run_is_told_before_it_is_loaded(
    monkeypatch, capsys, model, arguments, code, message
):
    monkeypatch.setattr(api.OpenModel, "load", lambda *rest: pytest.fail("the weights were loaded"))
    got, err = run_main(monkeypatch, capsys, model, *arguments)
    assert (got, err.count("\n")) == (code, 1)
    assert err.startswith(f"uringinfer: {message.replace('MODEL', model)}")


def test_a_container_that_takes_no_usage_file_is_told_before_it_is_loaded(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(api.OpenModel, "load", lambda *rest: pytest.fail("the weights were loaded"))
    usage = pack_moe(tmp_path) / "usage.json"
    usage.mkdir()
    code, err = run_main(monkeypatch, capsys, usage.parent, "--ids", "1", "--learn")
    assert code == 3
    assert (
        err == f"uringinfer: cannot write {usage}: Is a directory; leave --learn out, or make it writable\n"
    )


def test_a_prompt_longer_than_the_context_is_told_before_it_is_loaded(monkeypatch, capsys, model):
    monkeypatch.setattr(api.OpenModel, "load", lambda *rest: pytest.fail("the weights were loaded"))
    code, err = run_main(monkeypatch, capsys, model, "--ids", "1,2,3,4,5", "-c", "4")
    assert code == 2
    assert err.startswith("uringinfer: 5 tokens do not fit into a context of 4")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "a", "-c", "4"], "s holds 5 tokens, which do not fit into a context of 4"),
        (["--ids", "1,2,3", "-c", "8"], "4 tokens after 5 do not fit into a context of 8"),
        (["--ids", "600"], "token 600 is outside of the vocabulary of 600"),
    ],
)
def test_what_is_wrong_with_a_saved_session_is_told_before_it_is_loaded(
    monkeypatch, capsys, model, tmp_path, arguments, message
):
    # five tokens fed, a sixth chosen
    run(model, "--ids", "1,2,3,4", "-n", 2, "--ignore-eos", "--save-session", tmp_path / "s")
    monkeypatch.setattr(api.OpenModel, "load", lambda *rest: pytest.fail("the weights were loaded"))
    code, err = run_main(monkeypatch, capsys, model, "--load-session", tmp_path / "s", *arguments)
    assert code == 2
    assert message in err


def test_a_session_of_another_model_is_told_before_it_is_loaded(monkeypatch, capsys, model, tmp_path):
    run(model, "--ids", "1,2,3,4", "-n", 2, "--ignore-eos", "--save-session", tmp_path / "s")
    other = Containers(write_tiny_checkpoint(tmp_path / "checkpoint", layers=1), tmp_path)()
    monkeypatch.setattr(api.OpenModel, "load", lambda *rest: pytest.fail("the weights were loaded"))
    code, err = run_main(monkeypatch, capsys, other, "-p", "a", "--load-session", tmp_path / "s")
    assert code == 2
    assert "s is a conversation with another model" in err


def test_a_full_drive_names_the_logits_that_it_has_no_room_for(monkeypatch, capsys, model):
    code, err = run_main(monkeypatch, capsys, model, "--ids", "1,2,3,4", "--logits-out", "/dev/full")
    assert code == 3
    assert "uringinfer: cannot write /dev/full: No space left on device" in err.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["generate", "-p", "a"], ["verify"]])
def test_a_tokenizer_that_may_not_be_read_exits_3_from_every_command(
    command_line, monkeypatch, model, arguments
):
    real = os.open

    def refuse(path, *rest, **options):
        if Path(path).name == "tokenizer.json":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *rest, **options)

    # to the superuser everything is readable, so the refusal is played
    monkeypatch.setattr(os, "open", refuse)
    result = command_line(arguments[0], model, *arguments[1:])
    assert result.code == 3
    assert result.stderr == f"uringinfer: cannot read {model}/tokenizer.json: Permission denied\n"


def test_a_path_without_a_model_is_a_usage_error(monkeypatch, capsys, tmp_path):
    code, err = run_main(monkeypatch, capsys, tmp_path / "none", "-p", "a")
    assert code == 2
    assert err.startswith(f"uringinfer: {tmp_path / 'none'} does not exist; give NAME.uring, ")
    assert err.count("\n") == 1


INTERRUPTED = """
import os, signal
from uringinfer.cli.main import main
from uringinfer.engine.logits_file import LogitsFile

append, rows = LogitsFile.append, 0

def append_and_interrupt(self, logits):
    global rows
    append(self, logits)
    rows += len(logits)
    if rows == 20:
        os.kill(os.getpid(), signal.SIGINT)

LogitsFile.append = append_and_interrupt
main()
"""
"""The command line, that hears Ctrl-C behind the twentieth row of logits."""


def start(*command):
    """Starts Python; a write to its output waits when 4096 bytes have not been read."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pipesize=4096,
        text=True,
        cwd=ROOT,
        env=environment,
    )


LONG = ("--ids", "1,2,3", "-n", "8000", "--ignore-eos")


def test_the_first_interrupt_ends_the_turn_and_keeps_the_text(model):
    process = start("-m", "uringinfer", "generate", model, *LONG, "--temp", "1", "-s", "1")
    first = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert len(first) == 20 and out.endswith("\n")
    assert "decode:" in err
    assert "Traceback" not in err


def test_an_interrupted_run_still_prints_its_json(model, tmp_path):
    path = tmp_path / "logits.npy"
    process = start("-c", INTERRUPTED, "generate", model, *LONG, "--json", "--logits-out", str(path))
    out, _ = process.communicate()
    assert process.returncode == 130
    generation = json.loads(out)
    assert generation["finish_reason"] == "interrupted"
    assert len(np.load(path)) == 3 + len(generation["tokens"]) - 1 == 20


@pytest.mark.parametrize(("tokens", "what"), [(6, "One token"), (0, "One chunk of the prompt")])
def test_the_report_shows_the_last_phase_and_changes_no_token(model, tmp_path, tokens, what):
    plain = json.loads(run(model, "-p", "hello", "-n", tokens, "--ignore-eos", "--json").stdout)
    path = tmp_path / "report.html"
    told = json.loads(
        run(model, "-p", "hello", "-n", tokens, "--ignore-eos", "--json", "--report", path).stdout
    )
    assert told["tokens"] == plain["tokens"]
    assert what in path.read_text() and 'aria-label="memory against the budget"' in path.read_text()


def test_a_saved_session_goes_on_where_it_stopped(model, tmp_path):
    def tokens(*arguments):
        return json.loads(run(model, "--json", "--ignore-eos", *arguments).stdout)["tokens"]

    whole = tokens("-p", "hello", "-n", 10)
    first = tokens("-p", "hello", "-n", 4, "--save-session", tmp_path / "s")
    assert first + tokens("-n", 6, "--load-session", tmp_path / "s") == whole


def test_a_prompt_behind_a_loaded_session_is_its_next_turn(model, tmp_path):
    run(model, "-p", "hello", "-n", 4, "--ignore-eos", "--save-session", tmp_path / "s")
    result = run(model, "-p", "more", "-n", 4, "--json", "--load-session", tmp_path / "s")
    assert json.loads(result.stdout)["stats"]["prompt"]["tokens"] > 1


def test_without_a_prompt_and_without_a_session_there_is_nothing_to_do(model, monkeypatch, capsys):
    code, error = run_main(monkeypatch, capsys, model, "-n", "4")
    assert code == 2 and "no prompt was given" in error
