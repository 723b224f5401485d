"""Turns a stream of token ids into text as it arrives, never half a character.

A token may end in the middle of a character; what is incomplete is kept until the bytes that complete it
come. Each call costs the token's own bytes, however long the text already is. All the texts joined are
`Tokenizer.decode` of all the ids.
"""

from __future__ import annotations

import codecs

from uringinfer.text.tokenizer import Tokenizer


class StreamingDetokenizer:
    """The text of one growing sequence of tokens."""

    def __init__(
        self, tokenizer: Tokenizer, *, show_special: bool = False, continues_text: bool = False
    ) -> None:
        """`continues_text` says that the ids go on from other text, so that a first space belongs there."""
        self._tokenizer = tokenizer
        self._hidden = frozenset() if show_special else tokenizer.special_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._drops_space = tokenizer.drops_first_space and not continues_text

    def push(self, token_id: int) -> str:
        """The characters that `token_id` completes, often none.

        An id beyond the vocabulary (padding of the model's output table) has no text."""
        if token_id in self._hidden or token_id >= self._tokenizer.vocab_size:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._drops_space and data:
            data = data.removeprefix(b" ")
            self._drops_space = False
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed, usually nothing."""
        return self._decoder.decode(b"", final=True)
