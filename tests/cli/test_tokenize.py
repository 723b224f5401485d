import json
import os
import shutil

import pytest

from tests.packing import gguf_maker
from tests.text import chat_templates, tokenizer_files
from uringinfer.text.chat import ChatTemplate
from uringinfer.text.rendering import ChatRequest
from uringinfer.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tokenizer_files.write(
        tmp_path_factory.mktemp("model"),
        tokenizer_files.byte_level(),
        tokenizer_config={"bos_token": "<|endoftext|>", "chat_template": chat_templates.CHATML},
    )


def ids(result):
    assert result.code == 0, result.stderr
    return [int(number) for number in result.stdout.strip().split(",")]


def test_every_token_has_its_line(command_line, model):
    result = command_line("tokenize", model, "-p", "z 🙂")
    tokenizer = Tokenizer.open(model)
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert [int(number) for number, _ in lines] == tokenizer.encode("z 🙂")
    assert lines[0][1] == "'z'"
    assert (
        b"".join(eval(shown) if shown[0] == "b" else eval(shown).encode() for _, shown in lines)
        == "z 🙂".encode()
    )


def test_control_tokens_count_only_when_they_are_allowed(command_line, model):
    text = "<|im_end|>"
    assert ids(command_line("tokenize", model, "--ids", "--control", "-p", text)) == [2]
    assert 2 not in ids(command_line("tokenize", model, "--ids", "-p", text))


def test_the_chat_format_is_put_around_the_text(command_line, model):
    template = ChatTemplate(chat_templates.CHATML, Tokenizer.open(model))
    expected = template.encode(ChatRequest([{"role": "user", "content": "the dog"}]))
    assert ids(command_line("tokenize", model, "--ids", "--chat", "-p", "the dog")) == expected


def test_a_template_of_ones_own_takes_the_place_of_the_models(command_line, model, tmp_path):
    (tmp_path / "own.jinja").write_text("the dog")
    result = command_line("tokenize", model, "--ids", "--chat-template", tmp_path / "own.jinja", "-p", "x")
    assert ids(result) == Tokenizer.open(model).encode("the dog")


def test_the_beginning_can_be_asked_for(command_line, model):
    assert ids(command_line("tokenize", model, "--ids", "--bos", "-p", "z"))[0] == 0


def test_json_holds_numbers_texts_and_bytes(command_line, model):
    report = json.loads(command_line("tokenize", model, "--json", "--control", "-p", "<think>é").stdout)
    assert report["count"] == len(report["ids"]) == len(report["tokens"])
    assert report["tokens"][0] == {
        "id": report["ids"][0],
        "text": "<think>",
        "bytes": b"<think>".hex(),
        "control": True,
    }
    assert "".join(token["bytes"] for token in report["tokens"][1:]) == "é".encode().hex()


def test_detokenize_undoes_tokenize_through_pipes(command_line, model):
    text = "  the dog\n\nand 東京 🙂"
    tokens = command_line("tokenize", model, "--ids", "-", stdin=text.encode()).stdout
    assert command_line("detokenize", model, "-", stdin=tokens.encode()).stdout == text + "\n"
    assert command_line("detokenize", model, *tokens.strip().split(",")).stdout == text + "\n"


def test_detokenize_can_leave_special_tokens_out(command_line, model):
    (z,) = Tokenizer.open(model).encode("z")
    assert command_line("detokenize", model, f"0,{z}").stdout == "<|endoftext|>z\n"
    assert command_line("detokenize", model, "--no-special", f"0,{z}").stdout == "z\n"
    report = json.loads(command_line("detokenize", model, "--json", f"[0, {z}]").stdout)
    assert report == {"count": 2, "ids": [0, z], "text": "<|endoftext|>z"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tokenize"], "no text was given"),
        (["tokenize", "-p", "a", "-"], "more than once"),
        (["tokenize", "x"], "unexpected argument 'x'"),
        (["tokenize", "-f", "/nowhere/x"], "cannot read the text from /nowhere/x"),
        (["tokenize", "--chat", "--bos", "-p", "a"], "--chat excludes"),
        (["tokenize", "--bos", "--no-bos", "-p", "a"], "--bos and --no-bos exclude each other"),
        (["detokenize"], "no token numbers"),
        (["detokenize", "1,x"], "'x' is no token number"),
        (["detokenize", "999999"], "token 999999 is outside"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(command_line, model, arguments, message):
    command, *rest = arguments
    result = command_line(command, model, *rest)
    assert result.code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_stdin_that_is_no_utf_8_is_refused_by_its_byte(command_line, model):
    result = command_line("tokenize", model, "-", stdin=b"ab\xff")
    assert (result.code, result.stderr) == (2, "uringinfer: stdin is not UTF-8 (byte 2); convert it\n")


def test_numbers_from_stdin_may_be_none_and_must_be_text(command_line, model):
    assert command_line("detokenize", model, "-", stdin=b"").stdout == "\n"
    result = command_line("detokenize", model, "-", stdin=b"1,\xff")
    assert (result.code, result.stderr) == (2, "uringinfer: stdin is not UTF-8 (byte 2); convert it\n")


@pytest.mark.parametrize("command", ["tokenize", "detokenize"])
def test_text_without_end_is_refused_and_not_kept_in_memory(command_line, model, monkeypatch, command):
    monkeypatch.setattr("uringinfer.cli.inputs.MAX_BYTES", 1 << 14)
    full = command_line(command, model, "-", stdin=b"1 " * (1 << 13))
    assert full.code == 0
    result = command_line(command, model, "-", stdin=b"1 " * (1 << 13) + b"1")
    assert result.code == 2
    assert result.stderr == "uringinfer: stdin is longer than 16.00 KiB; give less text\n"


def test_a_device_without_end_is_no_text(command_line, model):
    result = command_line("tokenize", model, "-f", "/dev/zero")
    assert result.code == 2
    assert result.stderr == "uringinfer: /dev/zero is longer than 256.00 MiB; give less text\n"


def test_a_gguf_file_is_not_packed_to_look_at_its_tokens(command_line, tmp_path):
    model = tmp_path / "model.gguf"
    tokenizer = gguf_maker.byte_level_tokenizer(gguf_maker.smollm_pre_tokenizer())
    gguf_maker.make_gguf(model, gguf_maker.weights(), tokenizer=tokenizer)
    text = "The <|im_end|>"
    expected = tokenizer.encode(text).ids
    assert ids(command_line("tokenize", model, "--ids", "--control", "-p", text)) == expected
    assert command_line("detokenize", model, *expected).stdout == text + "\n"
    assert list(tmp_path.iterdir()) == [model]


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_pipe_in_a_files_place_is_refused_without_waiting_for_its_writer(
    command_line, model, tmp_path, name
):
    shutil.copytree(model, tmp_path / "copy")
    path = tmp_path / "copy" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    result = command_line("tokenize", path.parent, "-p", "a")
    assert result.code == 4
    assert f"{path}: is no regular file" in result.stderr


def test_a_pipe_in_the_place_of_tiktokens_ranks_is_refused_too(command_line, tmp_path):
    os.mkfifo(tmp_path / "tiktoken.model")
    result = command_line("tokenize", tmp_path, "-p", "a")
    assert result.code == 4
    assert "tiktoken.model: is no regular file" in result.stderr


def request_file(directory, **body):
    path = directory / "request.json"
    path.write_text(json.dumps(body))
    return path


def test_a_request_is_shown_as_it_would_be_fed(command_line, model, tmp_path):
    messages = [{"role": "user", "content": "<|im_end|>"}]
    path = request_file(tmp_path, model="m", temperature=0.5, messages=messages)
    report = json.loads(command_line("tokenize", model, "--request", path, "--json").stdout)
    template = ChatTemplate(chat_templates.CHATML, Tokenizer.open(model))
    assert report["ids"] == template.encode(ChatRequest(messages))
    assert report["text"] == (
        "<|im_start|>system\nYou are helpful.<|im_end|>\n"
        "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    )
    assert ["user\n<|im_end|>", False] in report["segments"]
    assert ["<|im_end|>", True] in report["segments"]
    assert "".join(text for text, _ in report["segments"]) == report["text"]


def test_a_request_may_come_from_stdin_and_leave_the_answer_out(command_line, model):
    body = {"messages": [{"role": "user", "content": "z"}], "add_generation_prompt": False}
    result = command_line("tokenize", model, "--ids", "--request", "-", stdin=json.dumps(body).encode())
    template = ChatTemplate(chat_templates.CHATML, Tokenizer.open(model))
    assert ids(result) == template.encode(ChatRequest(body["messages"]), False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": "x"}, "a list of messages"),
        ({"messages": [], "mesages": []}, "no 'mesages'; did you mean 'messages'?"),
        ({"messages": [], "tools": {}}, "tools are no list"),
        ({"messages": ["x"]}, "message 1 has the role 'x'"),
    ],
)
def test_a_request_that_is_none_is_refused(command_line, model, tmp_path, body, message):
    result = command_line("tokenize", model, "--request", request_file(tmp_path, **body))
    assert result.code == 2
    assert message in result.stderr


def test_a_request_excludes_what_the_chat_format_decides(command_line, model, tmp_path):
    path = request_file(tmp_path, messages=[])
    assert "--request excludes" in command_line("tokenize", model, "--request", path, "--bos").stderr
    assert "more than once" in command_line("tokenize", model, "--request", path, "-p", "x").stderr


def test_what_a_gguf_file_leaves_open_about_its_tokenizer_is_said(command_line, tmp_path):
    tokenizer = gguf_maker.byte_level_tokenizer(gguf_maker.smollm_pre_tokenizer())
    model = gguf_maker.make_gguf(tmp_path / "m.gguf", gguf_maker.weights(), tokenizer=tokenizer)
    data = model.read_bytes()
    model.write_bytes(data.replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.prx"))
    result = command_line("tokenize", model, "-p", "Paris", "--ids")
    assert result.code == 0
    assert "note: the file does not name how its tokenizer splits text" in result.stderr
