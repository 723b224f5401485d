"""Vocabularies of `tokenizer.json`, through the package `tokenizers`.

The file's added tokens are taken out before the package sees it: whether one of them may match depends on who
wrote the text, which the package cannot know. What is left of the file (normaliser, pre-tokeniser, model)
turns ordinary text into ids exactly as it would between two added tokens.

A control token's text can still come out of the model itself, where training kept the token's text in the
vocabulary ("</s>" of SentencePiece models). `encode` looks at what came out and cuts the text there.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from uringinfer.errors import IntegrityError, UnsupportedModelError
from uringinfer.text.files import read_json_object
from uringinfer.text.panics import panics_are_errors
from uringinfer.text.pieces import pieces
from uringinfer.text.vocabulary import AddedToken

FILE_NAME = "tokenizer.json"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class JsonVocabulary:
    """The vocabulary of one tokenizer.json; byte-level BPE and SentencePiece-style (`▁`, byte fallback)."""

    def __init__(
        self,
        document: Mapping[str, Any],
        path: Path,
        declared: Mapping[int, Mapping[str, Any]] | None = None,
        special: Collection[str] = (),
    ) -> None:
        """`document` is the parsed file, `path` names it in errors.

        `declared` are added tokens that stand in other files of the checkpoint, by id; `special` are texts
        that those files name for a purpose, which makes tokens of the vocabulary added ones.

        Raises IntegrityError for a file that `tokenizers` refuses, UnsupportedModelError for a decoder that
        does not turn each token into bytes of its own.
        """
        self._document = {**document, "added_tokens": [], "truncation": None, "padding": None}
        self._path = path
        try:
            pieces = document["model"]["vocab"]
            numbers = pieces if isinstance(pieces, dict) else {entry[0]: n for n, entry in enumerate(pieces)}
            last_piece = max(numbers.values())
            entries = [dict(entry) for entry in document.get("added_tokens") or ()]
            self._same = {int(key): int(first) for key, first in document.get("same_tokens", {}).items()}
            self._document.pop("same_tokens", None)
            last_piece = max([last_piece, *self._same])
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise IntegrityError(
                f"{path} has no usable vocabulary ({error!r})", hint="copy it anew"
            ) from error
        named = {numbers[text]: _special(text) for text in special if _is_marker(text) and text in numbers}
        entries += undeclared(entries, {**named, **(declared or {})}, numbers, path)
        decoder = list(_steps(document.get("decoder")))
        if any(step["type"] == "ByteFallback" for step in decoder):
            entries = [entry for entry in entries if not _is_byte(entry, numbers)]
        self._normalize = self._build(self._document).normalizer
        try:
            self.added = tuple(_added_token(entry, self._normalize) for entry in entries)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise IntegrityError(
                f"{path} has no usable vocabulary ({error!r})", hint="copy it anew"
            ) from error
        self.size = 1 + max([last_piece, *(token.id for token in self.added)])
        self._added_by_id = {token.id: token.content.encode() for token in self.added}
        self._control_ids = frozenset(token.id for token in self.added if token.is_control)
        unknown = document["model"].get("unk_token")
        self._unknown = numbers.get(unknown) if isinstance(unknown, str) else None
        self._hidden = [entry for entry, token in zip(entries, self.added, strict=True) if token.normalized]
        ordinary = {token.content for token in self.added if token.normalized and not token.is_control}
        self._document["added_tokens"] = [e for e in self._hidden if e["content"] in ordinary]
        self._start = self._build(self._document)
        self._bytes_of_piece = _piece_decoder(decoder, path)
        self.drops_first_space = any(
            (step["type"] == "Strip" and step.get("start", 0) > 0)
            or (step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
            for step in decoder
        )
        self.first_id = self._first_of_post_processing()

    @classmethod
    def open(
        cls,
        path: Path,
        declared: Mapping[int, Mapping[str, Any]] | None = None,
        special: Collection[str] = (),
    ) -> JsonVocabulary:
        """Reads tokenizer.json at `path`.

        Raises IntegrityError if it is no JSON object, EnvironmentError_ if it may not be read.
        """
        return cls(read_json_object(path), path, declared, special)

    def encode(self, text: str, *, at_start: bool, allow_control: bool = False) -> list[int]:
        """Ids of text; see `Vocabulary.encode`."""
        if allow_control and self._hidden:
            package = self._marked_start if at_start else self._marked_later
            with panics_are_errors(str(self._path)):
                ids = package.encode(text, add_special_tokens=False).ids
            return self._true_ids(package, ids)
        return self._encode_with(self._start if at_start else self._later, text)

    def encode_inside(self, text: str) -> list[int]:
        """Ids of text that continues other text; see `Vocabulary.encode_inside`."""
        return self._encode_with(self._inside, text)

    def parts(self, text: str) -> Iterator[str]:
        """Long text in pieces; see `Vocabulary.parts`."""
        return pieces(text, self._agrees)

    def _agrees(self, left: str, right: str) -> bool:
        return self.encode_inside(left + right) == self.encode_inside(left) + self.encode_inside(right)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; see `Vocabulary.token_bytes`."""
        added = self._added_by_id.get(token_id)
        if added is not None:
            return added
        if not 0 <= token_id < self.size:
            return b""
        piece = self._start.id_to_token(self._same.get(token_id, token_id))
        return b"" if piece is None else self._bytes_of_piece(piece)

    def _encode_with(self, tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
        ids: list[int] = []
        waiting = [(tokenizer, text)]  # pieces not yet encoded, the first one last
        while waiting:
            tokenizer, text = waiting.pop()
            with panics_are_errors(str(self._path)):
                encoding = tokenizer.encode(text, add_special_tokens=False)
            found = self._true_ids(tokenizer, encoding.ids)
            if self._control_ids.isdisjoint(found):
                ids += found
                continue
            spans = [
                span
                for token_id, span in zip(found, encoding.offsets, strict=True)
                if token_id in self._control_ids and not self._stands_for_others(token_id, text[slice(*span)])
            ]
            if not spans:
                ids += found
                continue
            pieces = _cut(text, spans)
            waiting += [(self._inside, piece) for piece in reversed(pieces[1:])]
            waiting.append((tokenizer, pieces[0]))
        return ids

    def _stands_for_others(self, token_id: int, text: str) -> bool:
        """Whether the token is the one for characters that the vocabulary lacks: `text` is not its own."""
        return token_id == self._unknown and text.encode() != self._added_by_id[token_id]

    def _true_ids(self, package: tokenizers.Tokenizer, ids: list[int]) -> list[int]:
        """The package numbers the added tokens that it was given itself; these are the file's numbers."""
        if not self._hidden:
            return ids
        given: dict[Any, int] = {package.token_to_id(e["content"]): e["id"] for e in self._hidden}
        return [given.get(token_id, token_id) for token_id in ids]

    def _build(self, document: Mapping[str, Any]) -> tokenizers.Tokenizer:
        try:
            with panics_are_errors(str(self._path)):
                return tokenizers.Tokenizer.from_str(json.dumps(document))
        except IntegrityError:
            raise
        except Exception as error:  # the package raises bare Exception for everything it refuses
            raise IntegrityError(
                f"the package tokenizers refuses {self._path} ({error})",
                hint="copy it anew, or install a newer tokenizers",
            ) from error

    @functools.cached_property
    def _later(self) -> tokenizers.Tokenizer:
        """For text behind an added token: a space is put in front only if the file says 'always'."""
        return self._without_prefix(lambda step: step.get("prepend_scheme") == "first")

    @functools.cached_property
    def _inside(self) -> tokenizers.Tokenizer:
        """For text that continues other text: nothing is put in front."""
        return self._without_prefix(lambda step: True)

    @functools.cached_property
    def _marked_start(self) -> tokenizers.Tokenizer:
        """Like `_start`, for text in which control tokens count."""
        return self._build({**self._document, "added_tokens": self._hidden})

    @functools.cached_property
    def _marked_later(self) -> tokenizers.Tokenizer:
        """Like `_later`, for text in which control tokens count."""
        found = self._without_prefix(lambda step: step.get("prepend_scheme") == "first", self._hidden)
        return self._marked_start if found is self._start else found

    def _without_prefix(
        self, applies: Callable[[dict[str, Any]], bool], added: list[dict[str, Any]] | None = None
    ) -> tokenizers.Tokenizer:
        """The tokenizer whose steps put no space in front, in those steps that `applies` is true of."""
        document = {
            key: copy.deepcopy(value) if key in ("normalizer", "pre_tokenizer") else value
            for key, value in self._document.items()
        }
        if added is not None:
            document["added_tokens"] = added
        changed = False
        for step in [*_steps(document.get("normalizer")), *_steps(document.get("pre_tokenizer"))]:
            if not applies(step):
                continue
            for key, neutral in (("prepend_scheme", "never"), ("prepend", ""), ("add_prefix_space", False)):
                if step.get(key, neutral) != neutral:
                    step[key] = neutral
                    changed = True
        return self._build(document) if changed else self._start

    def _first_of_post_processing(self) -> int | None:
        with panics_are_errors(str(self._path)):
            first = self._start.encode("a", add_special_tokens=True).ids[:1]
        return next((token_id for token_id in first if token_id in self._added_by_id), None)


def _cut(text: str, spans: list[tuple[int, int]]) -> list[str]:
    """`text` cut behind the first character of each span, so that the span cannot be found again.

    A span of one character cannot be cut; the character is left out.
    """
    pieces, position = [], 0
    for start, stop in spans:
        cut = start + 1 if stop - start > 1 else start
        pieces.append(text[position:cut])
        position = cut if stop - start > 1 else stop
    return [*pieces, text[position:]]


def undeclared(
    entries: list[dict[str, Any]],
    declared: Mapping[int, Mapping[str, Any]],
    numbers: Mapping[str, int],
    path: Path,
) -> list[dict[str, Any]]:
    """The declared tokens that `entries` do not have. A token of the vocabulary keeps its number there.

    Raises IntegrityError for a number that another token has.
    """
    known = {entry.get("content") for entry in entries}
    taken = {number: piece for piece, number in numbers.items()} if declared else {}
    taken |= {entry["id"]: entry["content"] for entry in entries if {"id", "content"} <= entry.keys()}
    missing = []
    for number, entry in declared.items():
        content = entry.get("content")
        if content in known or not isinstance(content, str):
            continue
        number = numbers.get(content, number)
        if taken.get(number, content) != content:
            raise IntegrityError(
                f"{path.parent}: added token {content!a} has the id {number} of {taken[number]!a}",
                hint="copy the tokenizer's files anew",
            )
        known.add(content)
        missing.append({**entry, "id": number})
    return missing


def _special(content: str) -> dict[str, Any]:
    return {"content": content, "special": True}


def _is_marker(content: str) -> bool:
    """Whether the text alone shows that it is one of a chat format's."""
    return AddedToken(0, content, special=False).is_control


def _is_byte(entry: Mapping[str, Any], numbers: Mapping[str, int]) -> bool:
    """Whether an added token is one of the vocabulary's bytes: it stands for a byte, not for its own text."""
    content = entry.get("content")
    return isinstance(content, str) and bool(_BYTE_TOKEN.fullmatch(content)) and content in numbers


def _added_token(entry: Mapping[str, Any], normalizer: Any) -> AddedToken:
    content, token_id = entry["content"], entry["id"]
    if not isinstance(content, str) or type(token_id) is not int or token_id < 0:
        raise ValueError(f"added token {content!r} has id {token_id!r}")
    content.encode()  # a lone surrogate, which JSON can write, is no text and a ValueError
    flags = {key: bool(entry.get(key)) for key in ("special", "lstrip", "rstrip", "single_word")}
    changes = normalizer is not None and normalizer.normalize_str(content) != content
    normalized = bool(entry.get("normalized")) and changes
    return AddedToken(id=token_id, content=content, normalized=normalized, **flags)


def _steps(stage: Any) -> Iterator[dict[str, Any]]:
    """The steps of a normaliser, pre-tokeniser or decoder, nested sequences laid flat."""
    if not isinstance(stage, dict):
        return
    nested = [value for key in ("normalizers", "pretokenizers", "decoders") for value in stage.get(key, ())]
    if nested:
        for step in nested:
            yield from _steps(step)
    elif stage.get("type") != "Sequence":
        yield stage


def _piece_decoder(decoder: list[dict[str, Any]], path: Path) -> Callable[[str], bytes]:
    """The function from a vocabulary piece to its bytes that the file's decoder steps describe."""
    kinds = {step["type"] for step in decoder}
    if "ByteLevel" in kinds:
        table = byte_level_table()

        def from_byte_level(piece: str) -> bytes:
            if all(character in table for character in piece):
                return bytes(table[character] for character in piece)
            return piece.encode()

        return from_byte_level
    if not kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"} or not kinds:
        name = ", ".join(sorted(kinds)) or "none"
        raise UnsupportedModelError(
            f"{path} has a decoder this package does not know ({name})",
            hint="byte-level and SentencePiece-style tokenizers are supported; use --ids for others",
        )
    replacements = []
    for step in decoder:
        if step["type"] == "Metaspace":
            replacements.append((str(step.get("replacement", "▁")), " "))
        elif step["type"] == "Replace" and "String" in step.get("pattern", {}):
            replacements.append((str(step["pattern"]["String"]), str(step["content"])))
    has_byte_tokens = "ByteFallback" in kinds

    def from_sentencepiece(piece: str) -> bytes:
        byte = _BYTE_TOKEN.fullmatch(piece) if has_byte_tokens else None
        if byte is not None:
            return bytes([int(byte.group(1), 16)])
        for old, new in replacements:
            piece = piece.replace(old, new)
        return piece.encode()

    return from_sentencepiece


@functools.cache
def byte_level_table() -> Mapping[str, int]:
    """The printable character that byte-level vocabularies write for each byte, to that byte.

    GPT-2's rule: printable Latin-1 characters stand for themselves, the others for U+0100 onwards in order.
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(256 + n): byte for n, byte in enumerate(others)}
