"""How much of what was fed a newly rendered prompt still begins with.

A model's own tokens need not be those that its text is split into. So ids are compared by what they stand
for: control tokens by their number, all others by the characters that they spell. Ids that were fed are kept
as far as both say the same, up to a place where a token ends in both.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from uringinfer.text.tokenizer import Tokenizer


def common_prefix(fed: Sequence[int], rendered: Sequence[int], tokenizer: Tokenizer) -> tuple[int, int]:
    """(tokens of `fed`, tokens of `rendered`) that stand for the same, as many as there are."""
    alike = next(
        (place for place, (a, b) in enumerate(zip(fed, rendered, strict=False)) if a != b),
        min(len(fed), len(rendered)),
    )
    # from the last control token on, where no character is half done
    start = next((place + 1 for place in range(alike - 1, -1, -1) if _is_control(fed[place], tokenizer)), 0)
    ours, theirs = _Reading(fed, start, tokenizer), _Reading(rendered, start, tokenizer)
    common = (alike, alike) if alike == min(len(fed), len(rendered)) else (start, start)
    while True:
        behind = ours if len(ours.text) <= len(theirs.text) else theirs
        if not behind.read():
            return common
        shorter, longer = sorted((ours.text, theirs.text), key=len)
        if not longer.startswith(shorter):
            return common
        if ours.text == theirs.text and ours.is_whole and theirs.is_whole:
            common = max(common, (ours.place, theirs.place))
            ours.text = theirs.text = ""


class _Reading:
    """Reads ids one by one; `text` is what those since the last common place stand for."""

    def __init__(self, ids: Sequence[int], place: int, tokenizer: Tokenizer) -> None:
        self.place = place
        self.text = ""
        self._ids = ids
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def is_whole(self) -> bool:
        """Whether no character is half done."""
        return not self._decoder.getstate()[0]

    def read(self) -> bool:
        """Takes one more token, or what is left of a character at the end; False if there is nothing."""
        if self.place == len(self._ids):
            rest = self._decoder.decode(b"", final=True)
            self.text += rest
            return bool(rest)
        token = self._ids[self.place]
        self.place += 1
        if _is_control(token, self._tokenizer):
            # lone surrogates, which no decoded text holds, keep the number apart from digits
            self.text += f"{self._decoder.decode(b'', final=True)}\ud800{token}\udfff"
        elif token < self._tokenizer.vocab_size:
            self.text += self._decoder.decode(self._tokenizer.token_bytes(token))
        return True


def _is_control(token: int, tokenizer: Tokenizer) -> bool:
    added = tokenizer.added_token(token)
    return added is not None and added.is_control
