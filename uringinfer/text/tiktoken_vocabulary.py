"""Vocabularies of `tiktoken.model`, as the Kimi models ship them, through the optional package `tiktoken`.

The file has one line for each ordinary token: base64 of its bytes, a space, its rank, which is its id. Added
tokens stand in tokenizer_config.json under `added_tokens_decoder`.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
_RUNS = re.compile(rf"\s{{1,{_LONGEST_RUN}}}|\S{{1,{_LONGEST_RUN}}}")


class TiktokenVocabulary:
    """The vocabulary of one tiktoken.model with the added tokens of its tokenizer_config.json."""

    drops_first_space = False
    first_id: int | None = None

    def __init__(self, ranks: Mapping[bytes, int], added: Mapping[str, Any], path: Path) -> None:
        """`ranks` are the bytes of ordinary tokens to their ids, `added` is `added_tokens_decoder`.

        Raises IntegrityError if an added token is malformed or takes the id of another token, and
        EnvironmentError_ without the package tiktoken.
        """
        try:
            import tiktoken
        except ImportError as error:
            raise EnvironmentError_(
                f"{path} needs the package tiktoken, which is not installed",
                hint="pip install 'uringinfer[tiktoken]', or give token numbers with --ids",
            ) from error
        self._bytes = {rank: piece for piece, rank in ranks.items()}
        tokens = []
        for key, entry in added.items():
            try:
                token = AddedToken(int(key), str(entry["content"]), bool(entry.get("special", True)))
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise IntegrityError(f"{path}: added token {key!r} is malformed ({error!r})") from error
            if token.id < 0 or token.id in self._bytes:
                raise IntegrityError(
                    f"{path}: added token {token.content!r} has the id {token.id} of another"
                )
            self._bytes[token.id] = token.content.encode()
            tokens.append(token)
        self.added = tuple(tokens)
        self.size = 1 + max(self._bytes, default=-1)
        self._encoding = tiktoken.Encoding(
            path.name, pat_str=SPLIT_PATTERN, mergeable_ranks=dict(ranks), special_tokens={}
        )

    @classmethod
    def open(cls, path: Path, added: Mapping[str, Any]) -> TiktokenVocabulary:
        """Reads tiktoken.model at `path`.

        Raises IntegrityError naming the first line that is malformed, EnvironmentError_ if the machine
        refuses to read it.
        """
        return cls(_read_ranks(path), added, path)

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Ids of ordinary text; see `Vocabulary.encode`. Added tokens are outside the merged vocabulary."""
        return [token_id for piece in _bounded(text) for token_id in self._encoding.encode_ordinary(piece)]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; see `Vocabulary.token_bytes`."""
        return self._bytes.get(token_id, b"")


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
    """`text` in pieces without a run of (non-)white space longer than `_LONGEST_RUN`; usually one piece."""
    start = 0
    for run in _RUNS.finditer(text):
        if run.end() - run.start() == _LONGEST_RUN:
            yield text[start : run.end()]
            start = run.end()
    if start < len(text):
        yield text[start:]
