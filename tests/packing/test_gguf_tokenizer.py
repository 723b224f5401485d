import itertools
import json
from pathlib import Path

import pytest
from gguf_maker import TEXT, byte_level_tokenizer, smollm_pre_tokenizer
from tokenizers import Regex, Tokenizer, pre_tokenizers

from uringinfer.errors import IntegrityError
from uringinfer.packing.gguf_config import Metadata
from uringinfer.packing.gguf_tokenizer import tokenizer_files

STRINGS = [*TEXT, "Hello 2024!", "  spaces\n\n\tand tabs ", "日本語 🙂", "it's I'll", "<|im_end|>Paris"]


def metadata(**values):
    return Metadata(Path("m.gguf"), {f"tokenizer.{key.replace('__', '.')}": v for key, v in values.items()})


def byte_level(tokenizer, pre, **more):
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    values = {
        "ggml__model": "gpt2",
        "ggml__pre": pre,
        "ggml__tokens": tokens,
        "ggml__token_type": [3 if token.startswith("<|") else 1 for token in tokens],
        "ggml__merges": [" ".join(merge) for merge in model["merges"]],
        "ggml__bos_token_id": 0,
        "ggml__eos_token_id": 1,
    }
    return values | more


def built(values):
    files, notes = tokenizer_files(metadata(**values))
    assert notes == []
    return Tokenizer.from_str(files["tokenizer.json"].decode())


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize(
    ("pre", "original"),
    [
        ("gpt-2", pre_tokenizers.ByteLevel(add_prefix_space=False)),
        ("smollm", smollm_pre_tokenizer()),
        (
            "llama-bpe",
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            ),
        ),
    ],
)
def test_byte_level_tokens_are_those_of_the_original_tokenizer(pre, original):
    tokenizer = byte_level_tokenizer(original)
    rebuilt = built(byte_level(tokenizer, pre, ggml__add_bos_token=False))
    for text in STRINGS:
        assert rebuilt.encode(text).ids == tokenizer.encode(text).ids
        if "<|" not in text:
            assert rebuilt.decode(rebuilt.encode(text).ids) == text


def test_smollm_splits_digits_one_by_one():
    merging = byte_level_tokenizer(pre_tokenizers.ByteLevel(add_prefix_space=False))
    assert len(merging.encode("12345").tokens) < 5
    assert built(byte_level(merging, "smollm")).encode("12345").tokens == list("12345")


def test_a_text_begins_with_bos_where_the_file_or_the_model_says_so():
    tokenizer = byte_level_tokenizer(smollm_pre_tokenizer())
    assert built(byte_level(tokenizer, "smollm")).encode("x").ids[0] != 0
    assert built(byte_level(tokenizer, "smollm", ggml__add_bos_token=True)).encode("x").ids[0] == 0
    assert built(byte_level(tokenizer, "llama-bpe")).encode("x").ids[0] == 0


# pieces and scores as SentencePiece keeps them: control, bytes, then pieces by falling score
PIECES = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
PIECES += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
PIECES += [
    (piece, -float(number), 1)
    for number, piece in enumerate(
        ["▁t", "he", "▁the", "in", "er", "▁a", "re", "▁there", "▁", *"therina.", "there", "▁therein"]
    )
]


def sentence_piece(**more):
    values = {
        "ggml__model": "llama",
        "ggml__tokens": [piece for piece, _, _ in PIECES],
        "ggml__scores": [score for _, score, _ in PIECES],
        "ggml__token_type": [kind for _, _, kind in PIECES],
        "ggml__bos_token_id": 1,
        "ggml__eos_token_id": 2,
        "ggml__unknown_token_id": 0,
    }
    return values | more


def merge_greedily(text):
    """SentencePiece's BPE, literally: of all adjacent pairs that form a piece, join the best scored, leftmost
    first, until none is left; unknown characters fall to bytes."""
    scores = {piece: score for piece, score, kind in PIECES if kind == 1}
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        joins = [
            (-scores[a + b], number)
            for number, (a, b) in enumerate(itertools.pairwise(parts))
            if a + b in scores
        ]
        if not joins:
            break
        _, number = min(joins)
        parts[number : number + 2] = [parts[number] + parts[number + 1]]
    return [
        piece
        for part in parts
        for piece in ([part] if part in scores else [f"<0x{b:02X}>" for b in part.encode()])
    ]


@pytest.mark.parametrize("text", ["the there", "therein a", "tea at the inn", "é there", "  the", "in.\n"])
def test_sentence_piece_tokens_are_those_of_merging_by_score(text):
    tokenizer = built(sentence_piece())
    assert tokenizer.encode(text, add_special_tokens=False).tokens == merge_greedily(text)
    assert tokenizer.encode(text).ids[0] == 1
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_config_carries_special_tokens_and_the_chat_template():
    values = byte_level(
        byte_level_tokenizer(smollm_pre_tokenizer()), "smollm", chat_template="{{ messages }}"
    )
    config = json.loads(tokenizer_files(metadata(**values))[0]["tokenizer_config.json"])
    assert config == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "chat_template": "{{ messages }}",
    }


def test_an_end_of_turn_token_ends_a_text_too():
    values = byte_level(byte_level_tokenizer(smollm_pre_tokenizer()), "smollm", ggml__eot_token_id=0)
    generation = json.loads(tokenizer_files(metadata(**values))[0]["generation_config.json"])
    assert generation == {"bos_token_id": 0, "eos_token_id": [0, 1]}


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({}, "holds no tokenizer"),
        ({"ggml__model": "bert"}, "tokenizer bert/default is not known"),
        ({"ggml__model": "gpt2", "ggml__pre": "tekken"}, "tokenizer gpt2/tekken is not known"),
    ],
)
def test_an_unknown_tokenizer_is_a_note_and_not_a_guess(values, note):
    files, notes = tokenizer_files(metadata(**values))
    assert files == {}
    assert note in notes[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ggml__scores": [1.0]}, "1 scores for"),
        ({"ggml__token_type": [1]}, "1 token types for"),
        ({"ggml__bos_token_id": 9999}, "bos token 9999 of"),
        ({"ggml__bos_token_id": "x"}, "is 'x', not the number of a token"),
        ({"ggml__tokens": ["a", 5]}, "not a list of str"),
        ({"ggml__tokens": [p for p, _, _ in PIECES[:-1]] + ["<s>"]}, "1 tokens stand twice"),
    ],
)
def test_a_vocabulary_that_contradicts_itself_is_refused(change, message):
    with pytest.raises(IntegrityError, match=message):
        tokenizer_files(metadata(**sentence_piece(**change)))


def test_a_merge_of_unknown_tokens_is_refused():
    values = byte_level(byte_level_tokenizer(smollm_pre_tokenizer()), "smollm")
    values["ggml__merges"] = [*values["ggml__merges"], "zz qq"]
    with pytest.raises(IntegrityError, match="the merge 'zz qq' is none of known tokens"):
        tokenizer_files(metadata(**values))
