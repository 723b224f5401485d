"""A tokenizer in GGUF metadata -> the files of a Hugging Face checkpoint.

Two models: byte-level BPE ("gpt2") with its merges and a named pre-tokenizer, and SentencePiece's BPE
("llama"), whose merges follow from the scores of its pieces. Pre-tokenizers are those of the original
tokenizer.json files, by the name that llama.cpp gives them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from uringinfer.errors import IntegrityError
from uringinfer.packing.gguf_config import Metadata

_CONTROL, _USER_DEFINED = 3, 4

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def _split(pattern: str) -> dict[str, Any]:
    steps = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        _BYTE_LEVEL | {"use_regex": False},
    ]
    return {"type": "Sequence", "pretokenizers": steps}


_DIGITS = {
    "type": "Sequence",
    "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
}
_PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": _BYTE_LEVEL,
    "default": _BYTE_LEVEL,
    "smollm": _DIGITS,
    "llama-bpe": _split(_LLAMA3_SPLIT),
    "smaug-bpe": _split(_LLAMA3_SPLIT),
    "qwen2": _split(_QWEN2_SPLIT),
}
_NORMALIZED = {"qwen2"}
_IGNORES_MERGES = {"llama-bpe"}
_BEGINS_TEXT = {"llama-bpe"}
"""Pre-tokenizers whose models begin a text with the bos token where the file does not say."""


def tokenizer_files(metadata: Metadata) -> tuple[dict[str, bytes], list[str]]:
    """tokenizer.json, tokenizer_config.json and generation_config.json, and notes of what could not be had.

    Raises IntegrityError if the vocabulary contradicts itself.
    """
    if "tokenizer.ggml.model" not in metadata.values:
        return {}, ["the file holds no tokenizer; use token numbers"]
    kind = metadata.text("tokenizer.ggml.model")
    pre = metadata.text("tokenizer.ggml.pre", "default")
    if kind not in ("gpt2", "llama") or (kind == "gpt2" and pre not in _PRE_TOKENIZERS):
        return {}, [f"tokenizer {kind}/{pre} is not known, the container will have none; use token numbers"]
    tokens = metadata.items("tokenizer.ggml.tokens", str)
    add_bos = metadata.flag("tokenizer.ggml.add_bos_token", kind == "llama" or pre in _BEGINS_TEXT)
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(metadata, tokens),
        "normalizer": None,
    }
    tokenizer |= _byte_level(metadata, tokens, pre) if kind == "gpt2" else _sentence_piece(metadata, tokens)
    tokenizer["post_processor"] = _begin_with(metadata, tokens) if add_bos else None
    config = _tokenizer_config(metadata, tokens, add_bos)
    documents = {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": config,
        "generation_config.json": _generation_config(metadata),
    }
    return {name: (json.dumps(value) + "\n").encode() for name, value in documents.items()}, []


def _vocabulary(metadata: Metadata, tokens: list[str]) -> dict[str, int]:
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise IntegrityError(f"{metadata.path}: {len(tokens) - len(vocabulary)} tokens stand twice")
    return vocabulary


def _added_tokens(metadata: Metadata, tokens: list[str]) -> list[dict[str, Any]]:
    """Tokens that text is split at before all else: control tokens, and those the model's authors added."""
    if "tokenizer.ggml.token_type" not in metadata.values:
        return []
    types = metadata.items("tokenizer.ggml.token_type", int)
    if len(types) != len(tokens):
        raise IntegrityError(f"{metadata.path}: {len(types)} token types for {len(tokens)} tokens")
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": number, "content": token, **plain, "special": kind == _CONTROL}
        for number, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]


def _byte_level(metadata: Metadata, tokens: list[str], pre: str) -> dict[str, Any]:
    merges = [merge.split(" ") for merge in metadata.items("tokenizer.ggml.merges", str)]
    vocabulary = _vocabulary(metadata, tokens)
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= vocabulary.keys():
            raise IntegrityError(f"{metadata.path}: the merge {' '.join(merge)!a} is none of known tokens")
    return {
        "normalizer": {"type": "NFC"} if pre in _NORMALIZED else None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre in _IGNORES_MERGES,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def _sentence_piece(metadata: Metadata, tokens: list[str]) -> dict[str, Any]:
    scores = metadata.items("tokenizer.ggml.scores", float)
    if len(scores) != len(tokens):
        raise IntegrityError(f"{metadata.path}: {len(scores)} scores for {len(tokens)} tokens")
    vocabulary = _vocabulary(metadata, tokens)
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


def _begin_with(metadata: Metadata, tokens: list[str]) -> dict[str, Any] | None:
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
        "special_tokens": {bos: {"id": bos, "ids": [tokens.index(bos)], "tokens": [bos]}},
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
