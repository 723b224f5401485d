"""Long text in pieces that can be turned into ids one by one, so that memory does not grow with the text.

Where a text may be cut without a change of its ids depends on the vocabulary. So a cut is proposed where
texts usually allow one, and tried on the text around it: the ids of both sides together must be those of one
side and then of the other. A piece grows until such a place is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

PIECE = 1 << 15
"""Characters of a piece, about. The package tokenizers takes up to 300 bytes for each."""
AROUND = 1 << 10
"""Characters on each side of a cut that it is tried on."""
_TRIALS = 4
"""Cuts that are tried of each kind before a piece grows."""

Agrees = Callable[[str, str], bool]
"""Whether two texts, one behind the other, have the ids of the one and then of the other."""


def pieces(text: str, agrees: Agrees) -> Iterator[str]:
    """`text` in pieces of about `PIECE` characters; a short text is one piece."""
    position = 0
    while len(text) - position > PIECE + AROUND:
        cut = _find_cut(text, position, agrees)
        if cut is None:
            break
        yield text[position:cut]
        position = cut
    if position < len(text):
        yield text[position:] if position else text


def _find_cut(text: str, position: int, agrees: Agrees) -> int | None:
    """Where the piece that begins at `position` may end; None if nowhere before the end of the text."""
    first, last = position + PIECE // 2, position + PIECE
    while first < len(text) - AROUND:
        last = min(last, len(text) - AROUND)
        for is_place in (_is_new_line, _is_new_word, _is_change):
            for cut in _places(text, first, last, is_place):
                if agrees(text[max(position, cut - AROUND) : cut], text[cut : cut + AROUND]):
                    return cut
        first, last = last, last + PIECE
    return None


def _places(text: str, first: int, last: int, is_place: Callable[[str, str], bool]) -> Iterator[int]:
    """At most `_TRIALS` places, the last ones first; they are looked for in the end of the range alone."""
    found = 0
    for cut in range(last, max(first, last - PIECE // 2), -1):
        if is_place(text[cut - 1], text[cut]):
            yield cut
            found += 1
            if found == _TRIALS:
                return


def _is_new_line(before: str, behind: str) -> bool:
    return before == "\n" and not behind.isspace()


def _is_new_word(before: str, behind: str) -> bool:
    return behind == " " and not before.isspace()


def _is_change(before: str, behind: str) -> bool:
    return before != behind and not before.isspace() and not behind.isspace()
