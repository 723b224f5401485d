"""Added tokens of every kind and from every file, against the package `tokenizers`."""

import json

import pytest
import tokenizers

from tests.text import tokenizer_files
from tests.text.texts import TEXTS
from uringinfer.errors import IntegrityError
from uringinfer.text.tokenizer import Tokenizer

FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}


def adding(document, *entries):
    """The document with more added tokens, numbered behind all others unless they say so."""
    numbers = [*document["model"]["vocab"].values(), *(entry["id"] for entry in document["added_tokens"])]
    for number, entry in enumerate(entries, start=1 + max(numbers)):
        document["added_tokens"].append({"id": number, **FLAGS, **entry})
    return document


def compared(tmp_path, document, samples):
    tokenizer = Tokenizer.open(tokenizer_files.write(tmp_path, document))
    package = tokenizers.Tokenizer.from_str(json.dumps(document))
    for sample in samples:
        ids = tokenizer.encode(sample, add_bos=False, allow_control=True)
        assert ids == package.encode(sample, add_special_tokens=False).ids, sample
    return tokenizer


@pytest.mark.parametrize("make", [tokenizer_files.byte_level, tokenizer_files.sentencepiece_style])
def test_fifty_texts_give_the_ids_of_the_package(tmp_path, make):
    compared(tmp_path, make(), TEXTS)


SAMPLES = [*TEXTS, "<n>", " <n>", "x <n> y", "a<n>b", "foo x foo", "food", "a<q> b", " <n><n> <q>foo <n>"]


def test_tokens_of_the_normalised_text_are_found_where_the_package_finds_them(tmp_path):
    document = adding(
        tokenizer_files.sentencepiece_style(),
        {"content": "<n>", "normalized": True},
        {"content": "foo", "normalized": True, "single_word": True},
        {"content": "<q>", "rstrip": True},
    )
    tokenizer = compared(tmp_path, document, SAMPLES)
    marker = tokenizer.id_of("<n>")
    assert marker in tokenizer.encode(" <n>", allow_control=True)
    assert marker not in tokenizer.encode(" <n>")
    assert tokenizer.id_of("foo") in tokenizer.encode("foo")


def test_byte_tokens_that_are_also_added_ones_are_bytes(tmp_path):
    document = tokenizer_files.sentencepiece_style()
    numbers = document["model"]["vocab"]
    missing = next(byte for byte in range(0x21, 0x7F) if chr(byte) not in numbers)
    adding(
        document,
        *(
            {"content": f"<0x{byte:02X}>", "id": numbers[f"<0x{byte:02X}>"], "special": True}
            for byte in range(256)
        ),
    )
    tokenizer = compared(tmp_path, document, [text for text in TEXTS if "<0x" not in text])
    text = f"a{chr(missing)}b!"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode("<0x41>")) == "<0x41>"


def test_characters_that_a_vocabulary_lacks_become_its_unknown_token(tmp_path):
    document = tokenizer_files.sentencepiece_style()
    document["model"]["byte_fallback"] = False
    document["model"]["fuse_unk"] = False
    tokenizer = compared(tmp_path, document, ["a龘b", "龘龘"])
    unknown = tokenizer.id_of("<unk>")
    assert tokenizer.encode("a龘龘b", add_bos=False).count(unknown) == 2
    assert unknown not in tokenizer.encode("<unk>")


def without_end(document):
    """The document without the added token "<|im_end|>", which stays in the vocabulary."""
    kept = [entry for entry in document["added_tokens"] if entry["content"] != "<|im_end|>"]
    return {**document, "added_tokens": kept}


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer_config": {"added_tokens_decoder": {"2": {"content": "<|im_end|>", "special": True}}}},
        {"added_tokens": {"<|im_end|>": 2}},
        {"tokenizer_config": {"eos_token": "<|im_end|>"}},
        {"special_tokens_map": {"additional_special_tokens": ["<|im_end|>"]}},
    ],
    ids=["added_tokens_decoder", "added_tokens.json", "eos_token", "additional_special_tokens"],
)
def test_a_token_that_another_file_declares_is_an_added_one(tmp_path, settings):
    document = without_end(tokenizer_files.byte_level())
    assert document["model"]["vocab"]["<|im_end|>"] == 2
    tokenizer = Tokenizer.open(tokenizer_files.write(tmp_path, document, **settings))
    assert tokenizer.encode("a<|im_end|>", allow_control=True)[-1] == 2
    assert 2 not in tokenizer.encode("a<|im_end|>")
    assert 2 in tokenizer.eos_ids


def test_a_declared_token_outside_the_vocabulary_takes_its_number(tmp_path):
    document = tokenizer_files.byte_level()
    number = 1 + max(entry["id"] for entry in document["added_tokens"])
    tokenizer = Tokenizer.open(
        tokenizer_files.write(tmp_path, document, added_tokens={"<tool_call>": number})
    )
    assert tokenizer.encode("<tool_call>", allow_control=True) == [number]
    assert tokenizer.token_bytes(number) == b"<tool_call>"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"added_tokens": {"<new>": 5}}, "'<new>' has the id 5 of"),
        ({"added_tokens": {"<new>": "x"}}, "added_tokens.json: added token '<new>' is malformed"),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"7": {}}}},
            "tokenizer_config.json: .*'7' is malformed",
        ),
    ],
)
def test_a_declaration_that_cannot_be_is_named(tmp_path, settings, message):
    with pytest.raises(IntegrityError, match=message):
        Tokenizer.open(tokenizer_files.write(tmp_path, tokenizer_files.byte_level(), **settings))
