"""How byte-level vocabularies split text before pairs are merged, by the name that GGUF files give it.

`tokenizer.ggml.pre` is llama.cpp's name of a model family whose original tokenizer.json splits in its own
way. What stands here is that way, in the terms of tokenizer.json. Names of one way are grouped.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

Stage = dict[str, Any]

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_ASCII_SIGNS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CHINESE = r"[一-龥ࠀ-一가-퟿]+"

_LLAMA3 = "|".join([_CONTRACTION, _LETTERS, r"\p{N}{1,3}", _SIGNS, _REST])
_QWEN2 = "|".join([_CONTRACTION, _LETTERS, r"\p{N}", _SIGNS, _REST])
_QWEN35 = "|".join(
    [
        _CONTRACTION,
        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        _REST,
    ]
)
_DEEPSEEK3 = "|".join(
    [
        _ASCII_SIGNS + "[A-Za-z]+",
        r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
        r" ?[\p{P}\p{S}]+[\r\n]*",
        _REST,
    ]
)


def _words_by_case(contraction: str, numbers: str, upper: str = _UPPER, lower: str = _LOWER) -> list[str]:
    """Words that are cut before a capital letter, as OpenAI's o200k and what follows it have them."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return [
        f"{start}{upper}*{lower}+{contraction}",
        f"{start}{upper}+{lower}*{contraction}",
        numbers,
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        _REST,
    ]


_O200K = "|".join(_words_by_case(_CONTRACTION + "?", r"\p{N}{1,3}"))
_TEKKEN = "|".join(_words_by_case("", r"\p{N}"))
_KIMI = "|".join(
    [
        r"[\p{Han}]+",
        *_words_by_case(
            _CONTRACTION + "?",
            r"\p{N}{1,3}",
            upper=r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]",
            lower=r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]",
        )[:3],
        _SIGNS,
        _REST,
    ]
)
_BAILING = "|".join(
    [
        r"'(?i:[sdmt]|ll|ve|re)",
        r"[^\r\n\p{L}\p{N}]?+\p{L}+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]++[\r\n]*",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
_CASED = r"[[\p{Lu}\p{Ll}\p{Lt}]&&[^\u10D0-\u10FF]]"

BYTE_LEVEL: Stage = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
_BYTES_ALONE = BYTE_LEVEL | {"use_regex": False}
_EACH_DIGIT: Stage = {"type": "Digits", "individual_digits": True}


def _split(pattern: str) -> Stage:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _sequence(*stages: Stage) -> Stage:
    return {"type": "Sequence", "pretokenizers": list(stages)}


def _by(*patterns: str) -> Stage:
    return _sequence(*map(_split, patterns), _BYTES_ALONE)


@dataclass(frozen=True)
class Splitting:
    """One way to split. `stage` is tokenizer.json's pre_tokenizer, None for none.

    `raw`: pieces are characters rather than bytes, with "▁" for a space; `whole_words`: a word that is a
    token is not merged; `begins_text`: the models put the bos token first where the file does not say.
    """

    stage: Stage | None
    composed: bool = False
    """Whether text is brought into Unicode's normal form C."""
    whole_words: bool = False
    begins_text: bool = False
    raw: bool = False


@dataclass(frozen=True)
class _Family:
    splitting: Splitting
    names: Collection[str] = field(default_factory=tuple)


_FAMILIES = (
    _Family(Splitting(BYTE_LEVEL), ("gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "mellum")),
    _Family(
        Splitting(_by(_LLAMA3), whole_words=True, begins_text=True),
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"),
    ),
    _Family(Splitting(_by(_LLAMA3)), ("smaug-bpe", "dbrx", "glm4", "chatglm-bpe")),
    _Family(
        Splitting(_by(_QWEN2), composed=True),
        ("qwen2", "deepseek-r1-qwen", "megrez", "hunyuan", "kormo", "stablelm2"),
    ),
    _Family(Splitting(_by(_QWEN35), composed=True), ("qwen35",)),
    _Family(
        Splitting(_by(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
        ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
    ),
    _Family(
        Splitting(
            _by(
                r"[\r\n]",
                rf"\s?{_CASED}+",
                r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
                r"\s+$",
                _CHINESE,
                r"\p{N}+",
            )
        ),
        ("deepseek-llm",),
    ),
    _Family(
        Splitting(_by(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CHINESE, r"\p{N}")),
        ("deepseek-coder",),
    ),
    _Family(Splitting(_by(_KIMI), whole_words=True), ("kimi-k2", "kimi-k3", "kimi-linear")),
    _Family(Splitting(_by(_O200K), whole_words=True), ("gpt-4o", "llama4", "minimax-m2")),
    _Family(Splitting(_by(_TEKKEN), whole_words=True), ("tekken",)),
    _Family(Splitting(_by(_BAILING)), ("bailingmoe", "bailingmoe2", "llada-moe")),
    _Family(
        Splitting(_sequence(_EACH_DIGIT, BYTE_LEVEL)),
        ("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"),
    ),
    _Family(Splitting(_sequence(_EACH_DIGIT, BYTE_LEVEL), composed=True), ("command-r",)),
    _Family(
        Splitting(
            _sequence(
                {"type": "Punctuation", "behavior": "Contiguous"},
                BYTE_LEVEL,
                {"type": "Digits", "individual_digits": False},
                _split("[0-9][0-9][0-9]"),
            )
        ),
        ("falcon",),
    ),
    _Family(Splitting(None, raw=True), ("gemma4",)),
)
SPLITTINGS = {name: family.splitting for family in _FAMILIES for name in family.names} | {
    "default": Splitting(BYTE_LEVEL)
}
"""By the name in `tokenizer.ggml.pre`."""

_BY_ARCHITECTURE = {
    "qwen2": "qwen2",
    "qwen3": "qwen2",
    "deepseek2": "deepseek-v3",
    "glm4": "glm4",
    "kimi": "kimi-k2",
    "gpt-oss": "gpt-4o",
    "gpt_oss": "gpt-4o",
    "llama4": "llama4",
    "minimax": "minimax-m2",
    "gemma4": "gemma4",
    "falcon": "falcon",
    "starcoder": "starcoder",
    "command-r": "command-r",
    "cohere": "command-r",
    "smollm3": "smaug-bpe",
    "granite": "refact",
}
_BY_TOKEN = {
    "<|begin_of_text|>": "llama-bpe",
    "<｜begin▁of▁sentence｜>": "deepseek-v3",
    "[gMASK]": "glm4",
    "<|im_middle|>": "kimi-k2",
}


def assumed_name(architecture: str, tokens: Collection[str]) -> str:
    """The most likely name for a file that gives none: by a token that only one family has, else by the
    architecture, else GPT-2's."""
    for token, name in _BY_TOKEN.items():
        if token in tokens:
            return name
    longest_first = sorted(_BY_ARCHITECTURE, key=len, reverse=True)
    return next(
        (_BY_ARCHITECTURE[start] for start in longest_first if architecture.startswith(start)), "default"
    )
