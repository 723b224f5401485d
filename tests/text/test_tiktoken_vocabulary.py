"""Small tiktoken.model files against `byte_pair_oracle`."""

import base64
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.text.byte_pair_oracle import encode_plainly
from uringinfer.errors import IntegrityError
from uringinfer.text.tiktoken_vocabulary import _bounded, merge_pairs
from uringinfer.text.tokenizer import Tokenizer

WORDS = [
    "hello",
    " hello",
    " world",
    "HelloWorld",
    "东京北京",
    "12345",
    " 's",
    "don't",
    "\n\n",
    "    ",
    "()!",
    "é",
]
SPECIAL = {"[BOS]": 0, "[EOS]": 1, "<|end_of_msg|>": 2, "<|open|>": 3, "<|sep|>": 5}


def make_ranks():
    ranks = {bytes([byte]): byte for byte in range(256)}
    for word in WORDS:
        data = word.encode()
        for end in range(2, len(data) + 1):
            ranks.setdefault(data[:end], len(ranks))
    return ranks


RANKS = make_ranks()


def write(directory, ranks=RANKS):
    lines = [base64.b64encode(piece) + b" %d\n" % rank for piece, rank in ranks.items()]
    (directory / "tiktoken.model").write_bytes(b"".join(lines))
    added = {str(len(RANKS) + n): {"content": content, "special": True} for content, n in SPECIAL.items()}
    config = {"added_tokens_decoder": added, "bos_token": "[BOS]", "eos_token": "[EOS]"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": len(RANKS) + 2}))
    return directory


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer.open(write(tmp_path_factory.mktemp("tiktoken")))


texts = st.lists(
    st.sampled_from([*WORDS, "A", "'S", "'ll", " ", "\n", "\r\n", "x", "дом", "ｱ", "́", "<|open|>", "9"])
)


@settings(max_examples=200)
@given(st.one_of(texts.map("".join), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)))
@example("東京abc DON'T  x\n\n y12345")
def test_ids_are_those_of_the_plain_merger(tokenizer, text):
    assert tokenizer.encode(text) == encode_plainly(text, RANKS)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_added_tokens_count_only_where_they_are_allowed(tokenizer):
    open_id = len(RANKS) + SPECIAL["<|open|>"]
    assert open_id not in tokenizer.encode("<|open|>")
    assert tokenizer.encode("hello<|open|> hello", allow_control=True) == [
        *tokenizer.encode("hello"),
        open_id,
        *tokenizer.encode(" hello"),
    ]


def test_special_ids_come_from_the_settings(tokenizer):
    assert tokenizer.bos_id == len(RANKS)
    assert tokenizer.eos_ids == {len(RANKS) + 1, len(RANKS) + 2}
    assert tokenizer.vocab_size == len(RANKS) + 6
    assert tokenizer.encode("hello")[0] != tokenizer.bos_id, "the Kimi models put no beginning by themselves"


def test_an_id_that_no_token_has_is_empty(tokenizer):
    unnamed = len(RANKS) + 4
    assert tokenizer.token_bytes(unnamed) == b""


@pytest.mark.parametrize("run", ["a" * 60_000, " " * 60_000, "ab " * 10_000])
def test_very_long_runs_are_encoded_and_decoded_whole(tokenizer, run):
    assert tokenizer.decode(tokenizer.encode(run)) == run


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"!!!! 300\n", "line 2"),
        (b"YQ==\n", "line 2"),
        (b"YQ== x\n", "line 2"),
        (b"YWI= 0\n", "not distinct"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, message):
    write(tmp_path)
    (tmp_path / "tiktoken.model").write_bytes(b"YQ== 0\n" + line)
    with pytest.raises(IntegrityError, match=message):
        Tokenizer.open(tmp_path)


@pytest.mark.parametrize(
    ("added", "message"),
    [({"5": {"content": "[X]"}}, "the id 5 of another"), ({"x": {}}, "'x' is malformed")],
)
def test_damaged_added_tokens_are_named(tmp_path, added, message):
    write(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    with pytest.raises(IntegrityError, match=message):
        Tokenizer.open(tmp_path)


def test_a_file_without_a_token_for_each_byte_is_refused(tmp_path):
    write(tmp_path, {piece: rank for piece, rank in RANKS.items() if piece != b"a"})
    with pytest.raises(IntegrityError, match="no token for the byte 0x61"):
        Tokenizer.open(tmp_path)


def test_long_words_are_merged_as_the_package_tiktoken_does():
    tiktoken = pytest.importorskip("tiktoken", reason="the oracle; extra 'test'")
    package = tiktoken.Encoding("x", pat_str=r"\S+|\s+", mergeable_ranks=RANKS, special_tokens={})
    words = ["hello" * 500, "Hello东京北京" * 40, "é" * 999, "12345)!(" * 80]
    for word in words:
        assert merge_pairs(word.encode(), RANKS) == package.encode_ordinary(word)


def test_a_text_is_cut_where_kimis_own_tokenizer_cuts_it(tokenizer):
    assert [len(piece) for piece in _bounded("ab " * 200_000)] == [400_000, 200_000]
    assert [len(piece) for piece in _bounded("x" * 410_000)] == [25_000] * 16 + [10_000]
