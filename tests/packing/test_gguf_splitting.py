"""How text is split before merging, by the names in GGUF files, against other statements of the same."""

import json

import pytest
import regex
from tokenizers import Tokenizer, models

from tests.text.byte_pair_oracle import SPLIT as KIMI
from tests.text.texts import TEXTS
from uringinfer.packing.gguf_splitting import SPLITTINGS, assumed_name
from uringinfer.text.json_vocabulary import byte_level_table


def pieces(name, text):
    """The pieces of `text` as bytes."""
    document = json.loads(Tokenizer(models.BPE()).to_str())
    package = Tokenizer.from_str(json.dumps(document | {"pre_tokenizer": SPLITTINGS[name].stage}))
    table = byte_level_table()
    found = package.pre_tokenizer.pre_tokenize_str(text)
    return [bytes(table[character] for character in piece) for piece, _ in found]


def words(name, text):
    return [piece.decode() for piece in pieces(name, text)]


def published_patterns(monkeypatch):
    """OpenAI's own, as the package tiktoken states them."""
    openai_public = pytest.importorskip("tiktoken_ext.openai_public")
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *args, **kwargs: {})
    return {"gpt-2": openai_public.r50k_pat_str, "gpt-4o": openai_public.o200k_base()["pat_str"]}


@pytest.mark.parametrize("name", ["gpt-2", "gpt-4o"])
def test_text_is_split_as_openais_patterns_do(monkeypatch, name):
    pattern = regex.compile(published_patterns(monkeypatch)[name])
    for text in TEXTS:
        assert words(name, text) == pattern.findall(text)


def test_text_is_split_as_kimis_pattern_does():
    for text in TEXTS:
        assert words("kimi-k2", text) == KIMI.findall(text)


@pytest.mark.parametrize("name", [name for name in SPLITTINGS if not SPLITTINGS[name].raw])
def test_no_splitting_loses_text(name):
    for text in TEXTS:
        assert b"".join(pieces(name, text)) == text.encode()


EXAMPLES = {
    "llama-bpe": ("It's 12345 fooBar\n\n x", ["It", "'s", " ", "123", "45", " fooBar", "\n\n", " x"]),
    "glm4": ("WE'LL 1234", ["WE", "'LL", " ", "123", "4"]),
    "qwen2": ("a1234 b", ["a", "1", "2", "3", "4", " b"]),
    "deepseek-r1-qwen": ("a12 b", ["a", "1", "2", " b"]),
    "qwen35": ("नमस्ते 12", ["नमस्ते", " ", "1", "2"]),
    "deepseek-v3": (
        "x=12345, 東京です (foo)",
        ["x", "=", "123", "45", ",", " ", "東京です", " (", "foo", ")"],
    ),
    "deepseek-llm": ("ab 1234\n東京", ["ab", " ", "1234", "\n", "東京"]),
    "deepseek-coder": ("f(x) 12", ["f", "(", "x", ")", " ", "1", "2"]),
    "llama4": ("HTTPServer isn't 1234", ["HTTPServer", " isn't", " ", "123", "4"]),
    "minimax-m2": ("fooBar's", ["foo", "Bar's"]),
    "tekken": ("fooBar 12 it's", ["foo", "Bar", " ", "1", "2", " it", "'s"]),
    "smollm": ("a 12 b", ["a", " ", "1", "2", " b"]),
    "starcoder": ("x12", ["x", "1", "2"]),
    "command-r": ("x12 y", ["x", "1", "2", " y"]),
    "falcon": ("x 12345, y", ["x", " ", "123", "45", ",", " y"]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_split_as_the_models_makers_do(name):
    text, expected = EXAMPLES[name]
    assert words(name, text) == expected


@pytest.mark.parametrize(
    ("architecture", "tokens", "name"),
    [
        ("qwen3moe", [], "qwen2"),
        ("llama", ["<|begin_of_text|>"], "llama-bpe"),
        ("deepseek2", [], "deepseek-v3"),
        ("gpt-oss", [], "gpt-4o"),
        ("kimi-linear", [], "kimi-k2"),
        ("glm4moe", [], "glm4"),
        ("llama", [], "default"),
    ],
)
def test_a_name_that_is_missing_is_guessed_from_what_else_is_known(architecture, tokens, name):
    assert assumed_name(architecture, tokens) == name
