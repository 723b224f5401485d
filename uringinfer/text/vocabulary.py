"""What a vocabulary is: ordinary text to token ids, and a token id to its bytes.

A vocabulary knows nothing of control tokens' meaning. `Vocabulary.encode` turns *ordinary* text into ids and
never returns the id of a control token, whatever the text says; `tokenizer.Tokenizer` alone decides where
a control token may stand. Two implementations: `json_vocabulary.JsonVocabulary` (tokenizer.json) and
`tiktoken_vocabulary.TiktokenVocabulary` (tiktoken.model).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

_BRACKETED = re.compile(r"<[^<>\s][^<>]*>|\[[^\[\]\s][^\[\]]*\]|\{[^{}\s][^{}]*\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that stands beside the trained vocabulary and is looked for before anything else.

    `lstrip` and `rstrip` take the white space before or after the token with it; a `single_word` token counts
    only where no letter, digit or underscore touches it.
    """

    id: int
    content: str
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    """Looked for in the normalised text, which differs: by the vocabulary, not by an `AddedTokenFinder`."""

    @property
    def is_control(self) -> bool:
        """Whether the token structures a prompt, so that text of a user must never become it.

        Tokenizers mark turn markers as special but often not `<think>` or `<tool_call>`: everything in
        brackets counts too. Runs of white space and plain words that were merely added are ordinary. So is a
        single character, whatever its mark: text cannot do without it.
        """
        if len(self.content) < 2:
            return False
        return self.special or _BRACKETED.fullmatch(self.content) is not None


class Vocabulary(Protocol):
    """Ordinary text <-> ids."""

    size: int
    """One more than the largest id, added tokens included."""
    added: tuple[AddedToken, ...]
    drops_first_space: bool
    """Whether decoding drops one space at the very start (SentencePiece puts one in front of every text)."""
    first_id: int | None
    """The added token that the vocabulary file itself puts in front of every text, if it does."""

    def encode(self, text: str, *, at_start: bool, allow_control: bool = False) -> list[int]:
        """Ids of text in which no added token is looked for but those that only the normalised text shows.

        `at_start` says that nothing stands before `text`. Never a control token's id, unless `allow_control`.
        """
        ...

    def encode_inside(self, text: str) -> list[int]:
        """Ids of ordinary text that continues other ordinary text."""
        ...

    def parts(self, text: str) -> Iterator[str]:
        """Ordinary text in pieces that are never long: `encode` of the first and `encode_inside` of the
        others give the ids of all of it."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token stands for; b"" for an id that names no token (padding of the model's
        table)."""
        ...


class AddedTokenFinder:
    """Finds added tokens in text: at each place the longest, from left to right."""

    def __init__(self, tokens: Sequence[AddedToken]) -> None:
        self._by_content = {token.content: token for token in tokens if token.content}
        longest_first = sorted(self._by_content, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def find(self, text: str) -> Iterator[tuple[AddedToken, int, int]]:
        """The added tokens in `text` in order, each with the characters from start to stop that it takes."""
        position = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            token = self._by_content[match.group()]
            start, stop = match.span()
            if start < position or (token.single_word and _touches_a_word(text, start, stop)):
                continue
            if token.lstrip:
                start = position + len(text[position:start].rstrip())
            if token.rstrip:
                stop = len(text) - len(text[stop:].lstrip())
            yield token, start, stop
            position = stop

    def split(self, text: str) -> Iterator[str | AddedToken]:
        """The pieces of `text` in order: added tokens, and the non-empty text between them."""
        position = 0
        for token, start, stop in self.find(text):
            if start > position:
                yield text[position:start]
            yield token
            position = stop
        if position < len(text):
            yield text[position:]


def _touches_a_word(text: str, start: int, stop: int) -> bool:
    """Whether a letter, digit or underscore stands right before `start` or right at `stop`."""
    neighbours = text[max(start - 1, 0) : start] + text[stop : stop + 1]
    return re.search(r"\w", neighbours) is not None
