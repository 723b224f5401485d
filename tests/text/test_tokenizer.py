import errno
import json
import os
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.text import tokenizer_files
from uringinfer.errors import EnvironmentError_, IntegrityError, UnsupportedModelError, UsageError
from uringinfer.text.tokenizer import Tokenizer

PLAIN_TEXTS = [
    "Hello world",
    " the dog  and\n\n the fox\n",
    "Größe 東京 🙂",
    "",
    " ",
    "a<b>c</b> [1]",
    "      x",
]


def oracle(document: dict) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(document))


@pytest.mark.parametrize("make", [tokenizer_files.byte_level, tokenizer_files.sentencepiece_style])
@pytest.mark.parametrize(
    "text", [*PLAIN_TEXTS, "<|im_start|>user\nhi<|im_end|>\n<s>a b</s> c <think>x</think>"]
)
def test_with_control_tokens_allowed_the_ids_are_those_of_the_package(tmp_path, make, text):
    document = make()
    ours = Tokenizer.open(tokenizer_files.write(tmp_path, document))
    expected = oracle(document).encode(text, add_special_tokens=False).ids
    assert ours.encode(text, allow_control=True) == expected


@pytest.mark.parametrize("text", PLAIN_TEXTS)
def test_text_without_control_tokens_gives_the_same_ids_either_way(byte_level, text):
    assert byte_level.encode(text) == byte_level.encode(text, allow_control=True)


def test_user_text_never_becomes_a_control_token(byte_level, sentencepiece):
    for tokenizer in (byte_level, sentencepiece):
        for control in tokenizer.control_tokens:
            text = f"a{control.content}b {control.content}"
            ids = tokenizer.encode(text, add_bos=False)
            assert not {token.id for token in tokenizer.control_tokens} & set(ids)
            assert tokenizer.decode(ids) == text


def test_structural_tokens_that_are_not_marked_special_are_control_tokens_too(byte_level):
    assert byte_level.id_of("<think>") not in byte_level.encode("<think>")
    assert byte_level.encode("<think>", allow_control=True) == [byte_level.id_of("<think>")]


def test_added_runs_of_white_space_are_ordinary_text(byte_level):
    assert byte_level.encode("      x")[0] == byte_level.id_of("      ")


def test_a_control_token_that_merges_would_build_is_cut_apart(tmp_path):
    document = tokenizer_files.sentencepiece_style()
    vocabulary, merges = document["model"]["vocab"], document["model"]["merges"]
    for left, right in (("<", "/"), ("</", "s"), ("</s", ">")):
        for piece in (left, right, left + right):
            vocabulary.setdefault(piece, max(vocabulary.values()) + 1)
        if [left, right] not in merges:
            merges.insert(0, [left, right])
    end = vocabulary["</s>"]
    without_added = oracle({**document, "added_tokens": []})
    assert end in without_added.encode("x</s>y", add_special_tokens=False).ids, "the trap is not set"

    tokenizer = Tokenizer.open(tokenizer_files.write(tmp_path, document))
    ids = tokenizer.encode("x</s>y</s></s>z")
    assert end not in ids
    assert tokenizer.decode(ids) == "x</s>y</s></s>z"


@settings(max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@example("<|im_end|>")
@example("</s><s>")
def test_decoding_undoes_encoding(byte_level, sentencepiece, text):
    assert byte_level.decode(byte_level.encode(text)) == text
    if "▁" not in text:  # SentencePiece's own sign for a space cannot be told from one
        assert sentencepiece.decode(sentencepiece.encode(text), show_special=False) == text


def test_decoding_agrees_with_the_package(byte_level, sentencepiece):
    documents = {
        byte_level: tokenizer_files.byte_level(),
        sentencepiece: tokenizer_files.sentencepiece_style(),
    }
    for tokenizer, document in documents.items():
        for text in PLAIN_TEXTS:
            ids = tokenizer.encode(text, add_bos=False)
            assert tokenizer.decode(ids) == oracle(document).decode(ids, skip_special_tokens=False)


def test_special_tokens_are_left_out_on_request_but_thinking_is_shown(byte_level):
    ids = byte_level.encode("<think>no</think>yes<|im_end|>", allow_control=True)
    assert byte_level.decode(ids, show_special=False) == "<think>no</think>yes"
    assert byte_level.decode(ids) == "<think>no</think>yes<|im_end|>"


def test_end_tokens_come_from_generation_config_and_tokenizer_config(byte_level, sentencepiece):
    assert byte_level.eos_ids == {0, 2}
    assert sentencepiece.eos_ids == {sentencepiece.id_of("</s>")}


def test_end_of_turn_counts_only_where_no_generation_config_speaks(tmp_path):
    document = tokenizer_files.byte_level()
    silent = Tokenizer.open(tokenizer_files.write(tmp_path / "silent", document))
    spoken = Tokenizer.open(
        tokenizer_files.write(tmp_path / "spoken", document, generation_config={"eos_token_id": 0})
    )
    assert silent.eos_ids == {silent.id_of("<|im_end|>")}
    assert spoken.eos_ids == {0}


def test_end_token_of_a_nested_text_config_is_found(tmp_path):
    directory = tokenizer_files.write(
        tmp_path, tokenizer_files.byte_level(), config={"text_config": {"eos_token_id": 7}}
    )
    assert 7 in Tokenizer.open(directory).eos_ids


def test_beginning_follows_the_checkpoint_and_can_be_overruled(byte_level, sentencepiece):
    bos = sentencepiece.bos_id
    assert sentencepiece.encode("a")[0] == bos
    assert bos not in sentencepiece.encode("a", add_bos=False)
    assert byte_level.encode("a", add_bos=True) == [byte_level.bos_id, *byte_level.encode("a")]


def test_beginning_that_the_post_processor_adds_is_noticed(tmp_path):
    document = tokenizer_files.byte_level()
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
    }
    directory = tokenizer_files.write(tmp_path, document, tokenizer_config={"bos_token": "<|endoftext|>"})
    assert Tokenizer.open(directory).adds_bos


def test_asking_for_a_beginning_that_the_model_lacks_is_refused(tmp_path):
    tokenizer = Tokenizer.open(tokenizer_files.write(tmp_path, tokenizer_files.byte_level()))
    with pytest.raises(UsageError, match="no token that begins a text"):
        tokenizer.encode("a", add_bos=True)


def test_space_in_front_is_put_only_at_the_start_where_the_file_says_first(tmp_path):
    document = tokenizer_files.sentencepiece_style()
    document["normalizer"] = None
    document["pre_tokenizer"] = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "first",
        "split": False,
    }
    tokenizer = Tokenizer.open(tokenizer_files.write(tmp_path, document))
    text = "the dog</s>the dog"
    expected = oracle(document).encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text, allow_control=True) == expected
    end = expected.index(tokenizer.id_of("</s>"))
    assert expected[:end] != expected[end + 1 :]


def test_white_space_beside_a_token_goes_with_it_where_the_file_says_so(tmp_path):
    document = tokenizer_files.byte_level()
    for entry in document["added_tokens"]:
        entry["rstrip"] = entry["content"] == "<|im_start|>"
        entry["lstrip"] = entry["content"] == "<|im_end|>"
        entry["single_word"] = entry["content"] == "<think>"
    tokenizer = Tokenizer.open(tokenizer_files.write(tmp_path, document))
    text = "a <|im_start|>\n  b \n<|im_end|> c x<think> <think>"
    assert tokenizer.encode(text, allow_control=True) == oracle(document).encode(text).ids


def test_token_bytes_cover_half_characters_byte_tokens_and_spaces(byte_level, sentencepiece):
    assert b"".join(map(byte_level.token_bytes, byte_level.encode("é 🙂"))) == "é 🙂".encode()
    plain = sentencepiece.encode("a 🙃", add_bos=False)
    assert b"".join(map(sentencepiece.token_bytes, plain)) == " a 🙃".encode()


def test_ids_outside_the_vocabulary_are_refused_by_number(byte_level):
    with pytest.raises(UsageError, match=f"token {byte_level.vocab_size} is outside"):
        byte_level.decode([byte_level.vocab_size])
    with pytest.raises(UsageError, match="token -1 is outside"):
        byte_level.token_bytes(-1)


def test_lone_surrogates_are_refused(byte_level):
    with pytest.raises(UsageError, match="not valid Unicode"):
        byte_level.encode("a\ud800")


def test_missing_tokenizer_names_the_file_and_the_way_around(tmp_path):
    with pytest.raises(UsageError, match=r"tokenizer\.json.*--ids"):
        Tokenizer.open(tmp_path)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"model": {}}', '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}}'],
)
def test_damaged_tokenizer_is_an_integrity_error_that_names_it(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(IntegrityError, match=r"tokenizer\.json"):
        Tokenizer.open(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "tiktoken.model"])
def test_a_file_that_may_not_be_read_is_an_error_of_the_environment(tmp_path, monkeypatch, name):
    def refuse(path, *rest, **options):
        code = errno.EACCES if Path(path).exists() else errno.ENOENT
        raise OSError(code, os.strerror(code), str(path))

    (tmp_path / name).write_text("{}")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(EnvironmentError_) as refused:
        Tokenizer.open(tmp_path)
    assert str(refused.value) == f"cannot read {tmp_path / name}: Permission denied"


def test_damaged_settings_are_an_integrity_error_that_names_them(tmp_path):
    tokenizer_files.write(tmp_path, tokenizer_files.byte_level())
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(IntegrityError, match=r"generation_config\.json is not JSON"):
        Tokenizer.open(tmp_path)


def test_decoder_that_is_not_known_is_unsupported(tmp_path):
    document = tokenizer_files.byte_level()
    document["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    with pytest.raises(UnsupportedModelError, match="WordPiece"):
        Tokenizer.open(tokenizer_files.write(tmp_path, document))
