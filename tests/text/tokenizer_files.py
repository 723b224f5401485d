"""Small real tokenizers, trained on the spot with the package `tokenizers`.

Training breaks ties as it likes, so each is trained once in a process.
"""

import copy
import functools
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog does not mind at all.",
    "Weights stay on the drive; every token streams what it needs through a window of memory.",
    "def read(file, offset, length):\n    return file[offset : offset + length]\n\n\nread(data, 0, 10)",
    "Größe, naïve café, 東京 and 北京, смотри, 🙂🙃 and 12,345.67 numbers <b>bold</b> [1] {2}",
    "user says hello, assistant says hello, system says nothing; s> </ <| |> im_start im_end",
] * 3

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINKING = ("<think>", "</think>")
"""Structural, but as in published tokenizers not marked special."""


def byte_level() -> dict:
    """A fresh copy of a byte-level BPE tokenizer.json in the manner of GPT-2, Qwen and SmolLM."""
    return copy.deepcopy(_byte_level())


@functools.cache
def _byte_level() -> dict:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=list(CONTROL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(content, normalized=False) for content in THINKING])
    tokenizer.add_tokens([AddedToken("      ", normalized=False)])
    return json.loads(tokenizer.to_str())


def sentencepiece_style() -> dict:
    """A fresh copy of a tokenizer.json converted from SentencePiece with byte fallback, as Llama 2 has."""
    return copy.deepcopy(_sentencepiece_style())


@functools.cache
def _sentencepiece_style() -> dict:
    names = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=450,
        special_tokens=names + [f"<0x{byte:02X}>" for byte in range(256)],
        limit_alphabet=50,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [entry for entry in document["added_tokens"] if entry["content"] in names]
    return document


def write(directory: Path, document: dict, **settings: dict) -> Path:
    """Writes tokenizer.json and one NAME.json for each of `settings` into `directory`; returns it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    for name, content in settings.items():
        (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


def with_chat_markup() -> dict:
    """`byte_level` with the markup of many chat formats: turn markers special, thinking and tools not."""
    names = ("start_header_id", "end_header_id", "eot_id", "user", "assistant", "system", "end")
    special = [f"<|{name}|>" for name in names] + ["[INST]", "[/INST]"]
    visible = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    return _adding(byte_level(), special, visible)


def with_kimi_k3_markup() -> dict:
    """`with_chat_markup` and the four markers by which Kimi K3's tokenizer is known."""
    names = ("open", "close", "sep", "end_of_msg")
    return _adding(with_chat_markup(), [f"<|{name}|>" for name in names], [])


def _adding(document: dict, special: list[str], visible: list[str]) -> dict:
    next_id = 1 + max(entry["id"] for entry in document["added_tokens"])
    for token_id, content in enumerate(special + visible, start=next_id):
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        entry = {"id": token_id, "content": content, **flags, "special": content in special}
        document["added_tokens"].append(entry)
    return document
