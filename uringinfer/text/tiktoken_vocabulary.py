"""Vocabularies of `tiktoken.model`, as the Kimi models ship them.

The file has one line for each ordinary token: base64 of its bytes, a space, its rank, which is its id. Added
tokens stand in tokenizer_config.json under `added_tokens_decoder`.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from uringinfer.errors import EnvironmentError_, IntegrityError
from uringinfer.storage.regular import read_regular
from uringinfer.text.vocabulary import AddedToken

FILE_NAME = "tiktoken.model"

_WORD_START = r"[^\r\n\p{L}\p{N}]?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
SPLIT_PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        _WORD_START + _UPPER + "*" + _LOWER + "+" + _CONTRACTION,
        _WORD_START + _UPPER + "+" + _LOWER + "*" + _CONTRACTION,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
"""How the Kimi models cut text into words before byte pairs are merged (Kimi K2 and K3's tokenizer)."""

_LONGEST_RUN = 25_000
"""Longer runs of (non-)white space are cut: the pattern backtracks over a run, and merging is quadratic in
it. Kimi's own tokenizer cuts at the same length."""
_LONGEST_PIECE = 400_000
"""Kimi's own tokenizer cuts there first, and begins to count runs anew."""
_MOST_KNOWN, _LONGEST_KNOWN = 20_000, 100
"""Words whose ids are kept, and the characters of one."""
_RUNS = re.compile(rf"\s{{1,{_LONGEST_RUN}}}|\S{{1,{_LONGEST_RUN}}}")


class TiktokenVocabulary:
    """The vocabulary of one tiktoken.model with the added tokens of its tokenizer_config.json."""

    drops_first_space = False
    first_id: int | None = None

    def __init__(
        self, ranks: Mapping[bytes, int], added: Mapping[int, Mapping[str, Any]], path: Path
    ) -> None:
        """`ranks` are the bytes of ordinary tokens to their ids, `added` the added tokens by id.

        Raises IntegrityError if an added token takes the id of another, or if a byte is no token.
        """
        self._ranks = ranks
        self._bytes = {rank: piece for piece, rank in ranks.items()}
        lacking = next((byte for byte in range(256) if bytes([byte]) not in ranks), None)
        if lacking is not None:
            raise IntegrityError(f"{path} has no token for the byte {lacking:#04x}", hint="copy it anew")
        tokens = []
        for number, entry in added.items():
            token = AddedToken(number, str(entry["content"]), bool(entry.get("special", True)))
            if token.id in self._bytes:
                raise IntegrityError(
                    f"{path}: added token {token.content!r} has the id {token.id} of another"
                )
            self._bytes[token.id] = token.content.encode()
            tokens.append(token)
        self.added = tuple(tokens)
        self.size = 1 + max(self._bytes, default=-1)
        self._split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(SPLIT_PATTERN), "isolated")
        self._known_words: dict[str, list[int]] = {}

    @classmethod
    def open(cls, path: Path, added: Mapping[int, Mapping[str, Any]]) -> TiktokenVocabulary:
        """Reads tiktoken.model at `path`.

        Raises IntegrityError naming the first line that is malformed, EnvironmentError_ if the machine
        refuses to read it.
        """
        return cls(_read_ranks(path), added, path)

    def encode(self, text: str, *, at_start: bool, allow_control: bool = False) -> list[int]:
        """Ids of text; see `Vocabulary.encode`. Added tokens are outside the merged vocabulary."""
        ids: list[int] = []
        for piece in _bounded(text):
            for word, _ in self._split.pre_tokenize_str(piece):
                ids += self._ids_of_word(word)
        return ids

    def _ids_of_word(self, word: str) -> list[int]:
        ids = self._known_words.get(word)
        if ids is None:
            data = word.encode()
            rank = self._ranks.get(data)
            ids = merge_pairs(data, self._ranks) if rank is None else [rank]
            if len(self._known_words) >= _MOST_KNOWN:
                self._known_words.clear()
            if len(word) <= _LONGEST_KNOWN:
                self._known_words[word] = ids
        return ids

    def encode_inside(self, text: str) -> list[int]:
        """Ids of text that continues other text; see `Vocabulary.encode_inside`."""
        return self.encode(text, at_start=False)

    def parts(self, text: str) -> Iterator[str]:
        """Long text in the pieces in which it is encoded; see `Vocabulary.parts`."""
        return _bounded(text)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; see `Vocabulary.token_bytes`."""
        return self._bytes.get(token_id, b"")


def merge_pairs(data: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """The ids of `data`, whose bytes are all tokens: of neighbours that make a token the two with the lowest
    rank are joined, the leftmost first, until no two are left. Takes n log n for n bytes.
    """
    count = len(data)
    following = list(range(1, count + 1))
    before = list(range(-1, count - 1))
    is_start = [True] * count
    waiting: list[tuple[int, int, int]] = []

    def consider(start: int) -> None:
        middle = following[start]
        if middle < count:
            stop = following[middle]
            rank = ranks.get(data[start:stop])
            if rank is not None:
                heapq.heappush(waiting, (rank, start, stop))

    for start in range(count - 1):
        consider(start)
    while waiting:
        _, start, stop = heapq.heappop(waiting)
        middle = following[start]
        if not is_start[start] or middle >= count or following[middle] != stop:
            continue  # one of the two was joined with another since
        is_start[middle] = False
        following[start] = stop
        if stop < count:
            before[stop] = start
        consider(start)
        if before[start] >= 0:
            consider(before[start])
    return [ranks[data[start : following[start]]] for start in range(count) if is_start[start]]


def _read_ranks(path: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    try:
        lines = read_regular(path).splitlines()
    except OSError as error:
        raise EnvironmentError_(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            piece, rank = line.split()
            ranks[base64.b64decode(piece, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise IntegrityError(
                f"{path}, line {number}: expected base64 and a rank, found {line[:40]!r}", hint="copy it anew"
            ) from error
    if len(set(ranks.values())) != len(ranks) or min(ranks.values(), default=-1) < 0:
        raise IntegrityError(f"{path}: ranks are not distinct numbers from 0 on", hint="copy it anew")
    return ranks


def _bounded(text: str) -> Iterator[str]:
    """`text` in pieces of at most `_LONGEST_PIECE` characters, none with a run of (non-)white space longer
    than `_LONGEST_RUN`; usually one piece."""
    for first in range(0, len(text), _LONGEST_PIECE):
        piece = text[first : first + _LONGEST_PIECE]
        start = 0
        for run in _RUNS.finditer(piece):
            if run.end() - run.start() == _LONGEST_RUN:
                yield piece[start : run.end()]
                start = run.end()
        if start < len(piece):
            yield piece[start:]
