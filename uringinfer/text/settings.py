"""The small JSON files beside a tokenizer: which tokens begin and end a text.

Files of a checkpoint are input from elsewhere: a file that is there but malformed is an IntegrityError that
names it, a file that is absent is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uringinfer.errors import IntegrityError
from uringinfer.text.files import read_json_object

CHANNEL, MESSAGE_END = "<|channel|>", "<|end|>"
"""gpt-oss writes a reply as several messages; the end of one is not that of the reply."""
TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|end_of_msg|>",
    "<end_of_turn>",
    "<turn|>",
    MESSAGE_END,
    "<|return|>",
    "<|call|>",
)
"""Tokens that end a turn in the chat formats at large. They also end generation where a checkpoint has no
generation_config.json to say so (GGUF files keep one end token only)."""

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """What the files say: ids as numbers, tokens by their text; `add_bos` is None where nothing is said."""

    bos: str | int | None
    eos: tuple[str | int, ...]
    add_bos: bool | None
    texts: Mapping[str, str]
    """The special tokens that chat templates may name: "bos_token" -> "<s>"."""
    declared: Mapping[int, Mapping[str, Any]]
    """Added tokens of tokenizer_config.json (`added_tokens_decoder`) and added_tokens.json: id -> entry."""
    special: frozenset[str]
    """The texts of all tokens that the files name for a purpose: they are special, wherever they stand."""


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, empty if there is no such file.

    Raises IntegrityError if it is something else, EnvironmentError_ if it may not be read.
    """
    try:
        return read_json_object(path)
    except FileNotFoundError:
        return {}


def read_token_settings(directory: Path) -> TokenSettings:
    """Collects the settings of the checkpoint or container in `directory`.

    generation_config.json has the last word on end tokens (a number or a list); the end token of
    tokenizer_config.json is one too. config.json is asked where both are silent, and then the end-of-turn
    tokens in `TURN_ENDS` count as well.
    """
    generation = read_json(directory / "generation_config.json")
    tokenizer = read_json(directory / "tokenizer_config.json")
    special = read_json(directory / "special_tokens_map.json")
    config = read_json(directory / "config.json")
    config = {**_object(config.get("text_config")), **config}

    eos = list(_tokens(generation.get("eos_token_id")))
    eos += [*_tokens(tokenizer.get("eos_token")), *_tokens(special.get("eos_token"))]
    if generation.get("eos_token_id") is None:
        eos += [*_tokens(config.get("eos_token_id")), *TURN_ENDS]
    bos = [
        *_tokens(tokenizer.get("bos_token")),
        *_tokens(special.get("bos_token")),
        *_tokens(generation.get("bos_token_id")),
        *_tokens(config.get("bos_token_id")),
    ]
    add_bos = tokenizer.get("add_bos_token")
    texts = {
        name: text
        for name in _NAMED_TOKENS
        for text in [*_tokens(special.get(name)), *_tokens(tokenizer.get(name))]
        if isinstance(text, str)
    }
    named = [*_NAMED_TOKENS, "additional_special_tokens", "extra_special_tokens"]
    specials = {
        text
        for settings in (tokenizer, special)
        for name in named
        for text in _tokens(settings.get(name))
        if isinstance(text, str)
    }
    return TokenSettings(
        bos=bos[0] if bos else None,
        eos=tuple(eos),
        add_bos=add_bos if isinstance(add_bos, bool) else None,
        texts=texts,
        declared=_declared(directory, tokenizer, specials),
        special=frozenset(specials),
    )


def _declared(
    directory: Path, tokenizer: Mapping[str, Any], specials: Collection[str]
) -> dict[int, dict[str, Any]]:
    """The added tokens that other files than tokenizer.json declare. Raises IntegrityError for a bad one."""
    decoder = _object(tokenizer.get("added_tokens_decoder"))
    listed = read_json(directory / "added_tokens.json")
    entries = [("tokenizer_config.json", key, entry) for key, entry in decoder.items()]
    entries += [("added_tokens.json", key, {"content": content}) for content, key in listed.items()]
    declared: dict[int, dict[str, Any]] = {}
    for file, key, entry in entries:
        content = entry.get("content") if isinstance(entry, dict) else None
        try:
            number = int(key)
        except (TypeError, ValueError):
            number = -1
        if not isinstance(content, str) or number < 0:
            raise IntegrityError(
                f"{directory / file}: added token {content or key!r} is malformed", hint="copy it anew"
            )
        declared.setdefault(number, {"special": content in specials, **entry})
    return declared


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tokens(value: Any) -> Iterator[str | int]:
    """The tokens that a setting names: a text, an added token's object, an id, or a list of these."""
    if isinstance(value, list):
        for entry in value:
            yield from _tokens(entry)
    elif isinstance(value, dict):
        yield from _tokens(value.get("content"))
    elif isinstance(value, str) or type(value) is int:
        yield value
