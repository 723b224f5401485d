"""A tokenizer in GGUF metadata -> the files of a Hugging Face checkpoint.

Two models: byte-level BPE ("gpt2") with its merges and a named way of splitting text (`gguf_splitting`), and
SentencePiece's BPE ("llama"), whose merges follow from the scores of its pieces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from uringinfer.errors import IntegrityError
from uringinfer.packing.gguf_metadata import Metadata
from uringinfer.packing.gguf_splitting import BYTE_LEVEL, SPLITTINGS, Splitting, assumed_name

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4

_BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_MARKER = re.compile(
    r"<\|[^\s|]+\|>|<｜[^\s｜]+｜>|</?[a-z_]+(?:_of_turn|:[a-z_]+)>|\[/?(?:INST|[A-Z]+(?:_[A-Z]+)+)\]"
)
"""Texts that only a chat format's markers have."""
_MOST_NAMED = 5
"""Tokens that one note names."""


def tokenizer_files(metadata: Metadata) -> tuple[dict[str, bytes], list[str]]:
    """tokenizer.json, tokenizer_config.json and generation_config.json, and notes of what could not be had.

    Raises IntegrityError if the vocabulary contradicts itself.
    """
    if "tokenizer.ggml.model" not in metadata.values:
        return {}, ["the file holds no tokenizer; use token numbers"]
    kind = metadata.text("tokenizer.ggml.model")
    tokens = metadata.items("tokenizer.ggml.tokens", str)
    notes: list[str] = []
    pre = metadata.text("tokenizer.ggml.pre", "")
    if kind == "gemma4":
        kind, pre = "gpt2", pre or "gemma4"
    if kind == "gpt2" and not pre:
        pre = assumed_name(metadata.text("general.architecture", ""), set(tokens))
        notes.append(
            f"the file does not name how its tokenizer splits text (tokenizer.ggml.pre): '{pre}' is assumed, "
            "and text may be split wrongly"
        )
    if kind not in ("gpt2", "llama"):
        return {}, [f"tokenizer '{kind}' is not known, the container will have none; use token numbers"]
    if kind == "gpt2" and pre not in SPLITTINGS:
        what = f"the tokenizer splits text in a way that is not known ('{pre}')"
        return {}, [f"{what}, the container will have none; use token numbers"]
    splitting = SPLITTINGS[pre] if kind == "gpt2" else None
    begins = kind == "llama" or (splitting is not None and splitting.begins_text)
    add_bos = metadata.flag("tokenizer.ggml.add_bos_token", begins)
    vocabulary, same = _vocabulary(tokens, notes)
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(metadata, tokens, vocabulary, notes),
        "normalizer": None,
    }
    if splitting is not None:
        tokenizer |= _merged(metadata, vocabulary, splitting)
    else:
        tokenizer |= _sentence_piece(metadata, tokens, vocabulary)
    tokenizer["post_processor"] = _begin_with(metadata, tokens, vocabulary) if add_bos else None
    if same:
        tokenizer["same_tokens"] = {str(number): first for number, first in same.items()}
    config = _tokenizer_config(metadata, tokens, add_bos)
    documents = {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": config,
        "generation_config.json": _generation_config(metadata),
    }
    return {name: _written(value) for name, value in documents.items()}, notes


def _written(document: Mapping[str, Any]) -> bytes:
    """The document as a file. Letters stay letters: a vocabulary in escapes takes three times the memory."""
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _vocabulary(tokens: list[str], notes: list[str]) -> tuple[dict[str, int], dict[int, int]]:
    """Each token's first number, and the numbers of tokens that stood before, to the first."""
    vocabulary: dict[str, int] = {}
    same: dict[int, int] = {}
    for number, token in enumerate(tokens):
        first = vocabulary.setdefault(token, number)
        if first != number:
            same[number] = first
    if same:
        named = [f"{tokens[number]!a} ({first} and {number})" for number, first in same.items()]
        notes.append(
            f"{len(same)} tokens of the vocabulary stand twice; text becomes the first: {_few(named)}"
        )
    return vocabulary, same


def _few(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _added_tokens(
    metadata: Metadata, tokens: list[str], vocabulary: Mapping[str, int], notes: list[str]
) -> list[dict[str, Any]]:
    """Tokens that text is split at before all else: control tokens, and those the model's authors added.

    Some files give no types, or type a chat format's markers as ordinary: markers that no merge makes are
    control tokens all the same.
    """
    types = [_NORMAL] * len(tokens)
    has_types = "tokenizer.ggml.token_type" in metadata.values
    if has_types:
        types = metadata.items("tokenizer.ggml.token_type", int)
        if len(types) != len(tokens):
            raise IntegrityError(f"{metadata.path}: {len(types)} token types for {len(tokens)} tokens")
    made = set()
    if "tokenizer.ggml.merges" in metadata.values:
        made = {merge.replace(" ", "", 1) for merge in metadata.items("tokenizer.ggml.merges", str)}
    named = {metadata.index(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "eot", "eom")}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added, promoted = [], []
    for number, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind == _NORMAL and vocabulary[token] == number and token not in made:
            is_marker = number in named if len(token) > 1 else False
            if (is_marker or _MARKER.fullmatch(token)) and not _BYTE_PIECE.fullmatch(token):
                kind = _CONTROL
                promoted.append(token)
        if kind in (_CONTROL, _USER_DEFINED) and vocabulary[token] == number:
            added.append({"id": number, "content": token, **plain, "special": kind == _CONTROL})
    if promoted and has_types:
        notes.append(f"tokens that the file types as ordinary text are taken as markers: {_few(promoted)}")
    elif not has_types:
        what = f"these are taken as markers: {_few(promoted)}" if promoted else "none is taken as a marker"
        notes.append(f"the file does not give its tokens' types; {what}")
    return added


def _merged(metadata: Metadata, vocabulary: Mapping[str, int], splitting: Splitting) -> dict[str, Any]:
    merges = metadata.items("tokenizer.ggml.merges", str)  # kept as texts: pairs take three times the memory
    for merge in merges:
        pair = merge.split(" ")
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys():
            raise IntegrityError(f"{metadata.path}: the merge {merge!a} is none of known tokens")
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    fallback = [
        space | {"pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return {
        "normalizer": space if splitting.raw else {"type": "NFC"} if splitting.composed else None,
        "pre_tokenizer": splitting.stage,
        "decoder": {"type": "Sequence", "decoders": fallback} if splitting.raw else BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": splitting.raw,
            "byte_fallback": splitting.raw,
            "ignore_merges": splitting.whole_words,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def _sentence_piece(metadata: Metadata, tokens: list[str], vocabulary: Mapping[str, int]) -> dict[str, Any]:
    scores = metadata.items("tokenizer.ggml.scores", float)
    if len(scores) != len(tokens):
        raise IntegrityError(f"{metadata.path}: {len(scores)} scores for {len(tokens)} tokens")
    prefix = (
        [{"type": "Prepend", "prepend": "▁"}]
        if metadata.flag("tokenizer.ggml.add_space_prefix", True)
        else []
    )
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    unknown = metadata.index("tokenizer.ggml.unknown_token_id")
    return {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [*prefix, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}],
        },
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *strip,
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": tokens[unknown] if unknown is not None and unknown < len(tokens) else None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": _merges_by_score(vocabulary, scores),
        },
    }


def _merges_by_score(vocabulary: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, best piece first: the order in which SentencePiece merges."""
    merges = []
    for piece, number in vocabulary.items():
        splits = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = [pair for pair in splits if pair[0] in vocabulary and pair[1] in vocabulary]
        known.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        merges += [(scores[number], pair) for pair in known]
    merges.sort(key=lambda merge: merge[0], reverse=True)
    return [pair for _, pair in merges]


def _named(metadata: Metadata, tokens: list[str], name: str) -> str | None:
    number = metadata.index(f"tokenizer.ggml.{name}_token_id")
    if number is not None and number >= len(tokens):
        raise IntegrityError(f"{metadata.path}: {name} token {number} of {len(tokens)} tokens")
    return None if number is None else tokens[number]


def _begin_with(
    metadata: Metadata, tokens: list[str], vocabulary: Mapping[str, int]
) -> dict[str, Any] | None:
    """The post-processor that puts the bos token before a text."""
    bos = _named(metadata, tokens, "bos")
    if bos is None:
        return None
    begin, text = {"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [begin, text],
        "pair": [begin, text, second],
        "special_tokens": {bos: {"id": bos, "ids": [vocabulary[bos]], "tokens": [bos]}},
    }


def _tokenizer_config(metadata: Metadata, tokens: list[str], add_bos: bool) -> dict[str, Any]:
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": add_bos}
    for key, name in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token = _named(metadata, tokens, name)
        if token is not None:
            config[f"{key}_token"] = token
    if "tokenizer.chat_template" in metadata.values:
        config["chat_template"] = metadata.text("tokenizer.chat_template")
    return config


def _generation_config(metadata: Metadata) -> dict[str, Any]:
    """The tokens that begin and end a text; a chat model's end of turn ends it too."""
    ends = [metadata.index(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    config: dict[str, Any] = {}
    bos = metadata.index("tokenizer.ggml.bos_token_id")
    if bos is not None:
        config["bos_token_id"] = bos
    known = sorted({end for end in ends if end is not None})
    if len(known) > 1 or metadata.index("tokenizer.ggml.eot_token_id") is not None:
        config["eos_token_id"] = known
    return config
