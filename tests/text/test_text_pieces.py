"""Long texts in pieces: the ids are those of the whole, as the package tokenizers gives them, and memory
stays where it is."""

import random
from pathlib import Path

import pytest

from tests.faults.peak_memory import peak_bytes
from tests.text import tokenizer_files
from uringinfer.text.json_vocabulary import JsonVocabulary
from uringinfer.text.pieces import AROUND, PIECE, pieces
from uringinfer.text.tokenizer import Tokenizer

JARGON = (Path(__file__).parents[1] / "data/jargon.txt").read_text()
DRAWN = random.Random(0)
TEXTS = {
    "prose": JARGON * 3,
    "one line": " ".join(JARGON.split()) * 2,
    "no space": "".join(DRAWN.choices("東京和北京是城市日本語。、", k=3 * PIECE)),
    "random letters": "".join(DRAWN.choices("abcdefghijklmnop0123456789+/", k=3 * PIECE)),
    "white space": "".join(DRAWN.choices([" ", "\n", "\t", "x"], k=3 * PIECE)),
    "one character": "a" * (2 * PIECE),
    "marks": "é" * PIECE + "👩‍👩‍👧" * PIECE,
}
KINDS = {"byte level": tokenizer_files.byte_level, "▁ style": tokenizer_files.sentencepiece_style}


@pytest.fixture(params=KINDS)
def directory(request, tmp_path):
    return tokenizer_files.write(tmp_path, KINDS[request.param]())


@pytest.mark.parametrize("kind", TEXTS)
def test_the_ids_of_the_pieces_are_those_of_the_whole_text(directory, kind, monkeypatch):
    tokenizer = Tokenizer.open(directory)

    in_pieces = tokenizer.encode(TEXTS[kind])
    monkeypatch.setattr(JsonVocabulary, "parts", lambda self, text: iter([text]))

    assert in_pieces == tokenizer.encode(TEXTS[kind])


@pytest.mark.parametrize("kind", TEXTS)
def test_pieces_are_all_of_the_text_and_none_is_far_longer_than_asked(kind):
    found = list(pieces(TEXTS[kind], lambda left, right: True))

    assert "".join(found) == TEXTS[kind]
    assert max(map(len, found)) <= 2 * PIECE + AROUND


def test_where_nothing_agrees_the_text_stays_whole():
    assert list(pieces(TEXTS["prose"], lambda left, right: False)) == [TEXTS["prose"]]


def test_a_short_text_is_one_piece_and_none_is_none():
    assert list(pieces("a b", pytest.fail)) == ["a b"]
    assert list(pieces("", pytest.fail)) == []


def test_memory_does_not_grow_with_the_text(directory):
    tokenizer = Tokenizer.open(directory)
    text = JARGON * 15

    def count():
        return sum(len(ids) for ids in tokenizer.encode_parts(text))

    assert count() > len(text) / 10
    assert peak_bytes(count) < 25 << 20  # at once it takes 260 bytes for each of 600,000 characters
